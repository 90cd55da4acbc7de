// Transactions and watch requests.
package main

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// txn draws a transaction. One with deletions has no put that keeps what is stored: differences.md,
// "a transaction that deletes without an end and then puts a deleted key with ignore_value" would end etcd.
func (g *generator) txn() *pb.TxnRequest {
	deletes := g.one(2)
	if g.one(40) {
		return g.tooManyOps()
	}
	return g.txnLevel(0, deletes)
}

func (g *generator) txnLevel(depth int, deletes bool) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for range g.Intn(3) {
		t.Compare = append(t.Compare, g.compare())
	}
	for range g.Intn(4) {
		t.Success = append(t.Success, g.op(depth, deletes))
	}
	for range g.Intn(3) {
		t.Failure = append(t.Failure, g.op(depth, deletes))
	}
	return t
}

func (g *generator) tooManyOps() *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for i := range 127 + g.Intn(3) {
		key := []byte(fmt.Sprintf("many/%03d", i))
		t.Success = append(t.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}})
	}
	if g.one(3) {
		t.Success = append(t.Success[:100], &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
			Compare: make27(g)}}})
	}
	return t
}

// make27 makes about as many compares as 128 leaves to a child of a level with 101 operations.
func make27(g *generator) []*pb.Compare {
	var compares []*pb.Compare
	for range 26 + g.Intn(3) {
		compares = append(compares, g.compare())
	}
	return compares
}

func (g *generator) op(depth int, deletes bool) *pb.RequestOp {
	switch n := g.Intn(20); {
	case n < 6:
		r := g.rangeRequest(false)
		if r.Revision != 0 && !g.one(4) {
			r.Revision = 0 // or nearly every transaction would fail by it
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	case n < 12:
		put := g.put(!deletes)
		if put.Lease != 0 && !g.one(3) {
			put.Lease = 0
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
	case n < 15 && deletes:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: g.deleteRange()}}
	case n < 19 && depth < 4:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: g.txnLevel(depth+1, deletes)}}
	case n == 19 && g.one(8):
		return &pb.RequestOp{}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("s")}}}
}

func (g *generator) compare() *pb.Compare {
	c := &pb.Compare{Key: g.key(), Result: pb.Compare_CompareResult(g.Intn(4)), Target: pb.Compare_CompareTarget(g.Intn(5))}
	if g.one(4) {
		c.Key, c.RangeEnd = g.span()
	}
	if g.one(40) {
		c.Result = 4 + pb.Compare_CompareResult(g.Intn(4))
	}
	if g.one(40) {
		c.Target = 5 + pb.Compare_CompareTarget(g.Intn(4))
	}
	union := c.Target
	if g.one(20) {
		union = pb.Compare_CompareTarget(g.Intn(6)) // of another kind than the target, or unset
	}
	switch union {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: int64(g.Intn(4))}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: g.bound()}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: g.bound()}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: g.value()}
	case pb.Compare_LEASE:
		// Which of two ids is the greater one is chance where servers chose them.
		grants := g.grants
		if c.Result == pb.Compare_LESS || c.Result == pb.Compare_GREATER {
			grants = nil
		}
		c.TargetUnion = &pb.Compare_Lease{Lease: g.leaseOf(grants)}
	}
	return c
}

func (g *generator) bound() int64 {
	if g.one(2) {
		return 0
	}
	return refNow - int64(g.Intn(30))
}

// changesTwice says whether a transaction may change a key more than once: some deletion covers some put.
func changesTwice(t *pb.TxnRequest) bool {
	var puts [][]byte
	var deletes []*pb.DeleteRangeRequest
	var collect func(*pb.TxnRequest)
	collect = func(t *pb.TxnRequest) {
		for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
			for _, op := range ops {
				switch r := op.Request.(type) {
				case *pb.RequestOp_RequestPut:
					puts = append(puts, r.RequestPut.Key)
				case *pb.RequestOp_RequestDeleteRange:
					deletes = append(deletes, r.RequestDeleteRange)
				case *pb.RequestOp_RequestTxn:
					collect(r.RequestTxn)
				}
			}
		}
	}
	collect(t)
	for _, d := range deletes {
		for _, key := range puts {
			if covers(d.Key, d.RangeEnd, key) {
				return true
			}
		}
	}
	return false
}

// watchStep opens or closes a stream, or sends a request on one of three.
func (g *generator) watchStep() Step {
	stream := 1 + g.Intn(3)
	request := &pb.WatchRequest{}
	switch n := g.Intn(20); {
	case n < 4:
		g.nextID++
		return Step{ID: g.nextID, Kind: kindOpen, Stream: stream}
	case n == 4:
		g.nextID++
		return Step{ID: g.nextID, Kind: kindClose, Stream: stream}
	case n < 13:
		request.RequestUnion = &pb.WatchRequest_CreateRequest{CreateRequest: g.watchCreate()}
	case n < 16:
		request.RequestUnion = &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: int64(g.Intn(6))}}
	case n < 19:
		request.RequestUnion = &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}
	}
	step := g.step(kindWatch, methodWatch, request)
	step.Stream = stream
	return step
}

func (g *generator) watchCreate() *pb.WatchCreateRequest {
	key, end := g.span()
	if g.one(10) {
		key = g.keys[len(g.keys)-1-g.Intn(oddKeys)]
	}
	r := &pb.WatchCreateRequest{Key: key, RangeEnd: end, PrevKv: g.one(2), ProgressNotify: g.one(4), Fragment: g.one(4)}
	switch g.Intn(10) {
	case 0, 1, 2:
		r.StartRevision = refNow - int64(g.Intn(60))
	case 3:
		r.StartRevision = refNow + 1 + int64(g.Intn(4))
	case 4:
		r.StartRevision = refCompacted - int64(g.Intn(2))
	case 5:
		r.StartRevision = []int64{-1, -7, 1, farFuture}[g.Intn(4)]
	}
	if g.one(3) {
		r.WatchId = int64(1 + g.Intn(5))
	}
	if g.one(3) {
		r.Filters = [][]pb.WatchCreateRequest_FilterType{{0}, {1}, {0, 1}, {1, 1}, {7}}[g.Intn(5)]
	}
	return r
}
