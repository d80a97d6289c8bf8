package saga

func (m *processMachine) diagram() string { return "" }
func (m *flowMachine) diagram() string    { return "" }
func (m *afterMachine) diagram() string   { return "" }
func (m *reactorMachine) diagram() string { return "" }
