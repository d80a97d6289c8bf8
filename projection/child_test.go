package projection

const childEnv = "DAYBOOK_PROJECTION_TEST_CHILD"

func child(string) error { return nil }
