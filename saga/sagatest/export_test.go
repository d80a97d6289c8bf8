package sagatest

func init() { maxTimers = 500 }
