package conformance

// goCases are the cases that scripts cannot state, for they need goroutines with code of their own
// or the garbage collector.
var goCases = map[string]func(*env){
	"P2/SocketsOnceEach":     socketsOnceEach,
	"P4/WaitsForCallsInside": closeWaitsForCalls,

	"C5/KeepsNeitherSlice": keepsNeitherSlice,
	"C8/Post":              memoryPost,
	"C8/Enable":            memoryEnable,
	"C8/OneShotOwner":      func(e *env) { memoryOneShot(e, level|oneShot, false) },

	"C8/OneShotOwnerDrained": func(e *env) { memoryOneShot(e, edge|oneShot, true) },
	"C8/Remove":              memoryRemove,

	"G4/NothingAfterwards":  nothingAfterRemoval,
	"G9/ReusedUnderWaiters": reusedUnderWaiters,

	"T7/AcrossWaiters": func(e *env) { drainedUnderLoad(e, edge|oneShot) },
	"Q4/Zero":          func(e *env) { e.check(note{}, nil, 0) },

	"O1/ManyWaiters":     func(e *env) { opManyWaiters(e, 16, 4, 3, false) },
	"O9/CloseRaces":      closeSocketRaces,
	"O10/ClosePortRaces": closePortRaces,
	"O12/HappensBefore":  opHappensBefore,
	"O13/ManyWaiters":    func(e *env) { opManyWaiters(e, 24, 3, 16, true) },

	"X2/Listeners":              everyListener,
	"X2/KeptReachable":          connKeptReachable,
	"X2/ReleasedByRemoval":      connReleased,
	"X3/RemoveUnderLoad":        acceptRemoveUnderLoad,
	"X5/UnderLoad":              func(e *env) { drainedUnderLoad(e, level|oneShot) },
	"X5/ArrivalRacesWithEnable": arrivalRaces,
	"X7/UnderLoad":              snapshotUnderLoad,
}
