package saga

// recorder is where reactions put what they want.
type recorder struct{}
