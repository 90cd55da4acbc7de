// Makes sequences of steps from a seed: which requests, with which options, but not what they mean at run time.
package main

import (
	"fmt"
	"math"
	"math/rand"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// generator draws the steps of one sequence.
type generator struct {
	*rand.Rand
	keys       [][]byte
	ends       [][]byte
	grants     []int // ids of steps that granted
	attachable []int // those of them whose lease may get keys
	nextID     int
	chosen     bool // keys may get leases whose ids the servers chose, after which hashes differ
}

// oddKeys is how many keys at the end of a generator's list are odd. They come less often.
const oddKeys = 6

// newGenerator makes the keys: few enough to be met again and again, and prefixes of each other.
func newGenerator(random *rand.Rand, nextID int) *generator {
	g := &generator{Rand: random, nextID: nextID}
	prefix := fmt.Sprintf("s%d/", random.Intn(4))
	for _, end := range []string{"", "a", "a\x00", "ab", "abc", "b", "ba", "c/1", "c/2", "c/3", "c/\xff", "d"} {
		g.keys = append(g.keys, []byte(prefix+end))
	}
	for i := range 6 {
		g.keys = append(g.keys, []byte(fmt.Sprintf("%sm%02d", prefix, i*7)))
	}
	g.keys = append(g.keys, []byte{0}, []byte{0, 0}, []byte{0xff}, []byte{0xff, 0xff}, []byte("a"), []byte(refLarge+"65536"))
	g.ends = append([][]byte{{0}, []byte(prefix + "c0"), []byte(prefix[:2] + "0"), {0xff}, []byte(prefix)}, g.keys...)
	return g
}

func (g *generator) one(in int) bool { return g.Intn(in) == 0 }

func (g *generator) key() []byte {
	if g.one(80) {
		return nil
	}
	if g.one(30) {
		return g.keys[len(g.keys)-1-g.Intn(oddKeys)]
	}
	return g.keys[g.Intn(len(g.keys)-oddKeys)]
}

// span draws a single key, a prefix, a range, or one without an end.
func (g *generator) span() (key, end []byte) {
	key = g.key()
	switch g.Intn(8) {
	case 0, 1, 2:
		return key, nil
	case 3:
		return key, []byte{0}
	case 4:
		return []byte{0}, []byte{0}
	case 5:
		if len(key) > 0 && len(key) < 100 {
			return key, successor(key)
		}
	}
	return key, g.ends[g.Intn(len(g.ends))]
}

// successor is the end of the range of all keys with a prefix.
func successor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return []byte{0}
}

func (g *generator) revision() int64 {
	switch g.Intn(12) {
	case 0:
		return refNow
	case 1, 2, 3:
		return refNow - int64(g.Intn(40))
	case 4:
		return refNow + 1 + int64(g.Intn(3))
	case 5:
		return -1 - int64(g.Intn(3))
	case 6:
		return refCompacted - 1 + int64(g.Intn(3))
	case 7:
		return 1
	}
	return 0
}

func (g *generator) rangeRequest(stream bool) *pb.RangeRequest {
	key, end := g.span()
	r := &pb.RangeRequest{Key: key, RangeEnd: end, Revision: g.revision()}
	if g.one(3) {
		r.Limit = int64(g.Intn(6)) - 1
	}
	r.Serializable = g.one(4)
	r.KeysOnly = g.one(6)
	r.CountOnly = g.one(8)
	if g.one(2) {
		r.SortOrder = pb.RangeRequest_SortOrder(g.Intn(3))
		r.SortTarget = pb.RangeRequest_SortTarget(g.Intn(5))
	}
	if g.one(60) {
		r.SortOrder = 3 + pb.RangeRequest_SortOrder(g.Intn(5))
	}
	if g.one(60) {
		r.SortTarget = 5 + pb.RangeRequest_SortTarget(g.Intn(5))
	}
	for _, bound := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
		if g.one(12) {
			*bound = refNow - int64(g.Intn(40)) + 1
		}
	}
	if stream {
		if g.one(3) {
			r.MinModRevision, r.MaxModRevision, r.MinCreateRevision, r.MaxCreateRevision = 0, 0, 0, 0
			r.SortOrder = pb.RangeRequest_SortOrder(g.Intn(2))
			r.SortTarget = pb.RangeRequest_KEY
		} else if g.one(2) {
			r.SortOrder, r.SortTarget = 0, 0
		}
		// differences.md, "RangeStream with a sort target and no order".
		if r.SortOrder == pb.RangeRequest_NONE && r.SortTarget <= pb.RangeRequest_VALUE {
			r.SortTarget = pb.RangeRequest_KEY
		}
	}
	return r
}

func (g *generator) value() []byte {
	switch g.Intn(40) {
	case 0, 1, 2:
		return nil
	case 3:
		return []byte(refLarge + "20000")
	}
	return []byte(fmt.Sprintf("v%d", g.Intn(30)))
}

// leaseOf refers to one of the leases that some steps granted, or to a chosen id, or to none.
func (g *generator) leaseOf(grants []int) int64 {
	switch n := g.Intn(10); {
	case n == 0:
		return int64(1 + g.Intn(6)) // chosen ids; some were never granted
	case n == 1 && g.one(3):
		return -5
	case n <= 4 && len(grants) > 0:
		return refLease + int64(grants[g.Intn(len(grants))])
	}
	return 0
}

// put draws a put; ignore says whether it may keep what is stored.
func (g *generator) put(ignore bool) *pb.PutRequest {
	r := &pb.PutRequest{Key: g.key(), Value: g.value(), PrevKv: g.one(3), Lease: g.leaseOf(g.attachable)}
	if ignore && g.one(6) {
		r.IgnoreValue = true
		if !g.one(4) {
			r.Value = nil
		}
	}
	if ignore && g.one(6) {
		r.IgnoreLease = true
		if !g.one(4) {
			r.Lease = 0
		}
	}
	return r
}

func (g *generator) deleteRange() *pb.DeleteRangeRequest {
	key, end := g.span()
	if g.one(2) {
		end = nil
	}
	return &pb.DeleteRangeRequest{Key: key, RangeEnd: end, PrevKv: g.one(2)}
}

func (g *generator) grant() Step {
	r := &pb.LeaseGrantRequest{TTL: 3600 + int64(g.Intn(3))*1000}
	attach := g.chosen
	if !g.one(4) {
		attach = true
		r.ID = []int64{1, 2, 3, 4, 5, 6, -5, math.MaxInt64, math.MinInt64}[g.Intn(9)]
	}
	switch g.Intn(12) {
	case 0:
		r.TTL = 9_000_000_000
	case 1:
		r.TTL = []int64{9_000_000_001, math.MaxInt64}[g.Intn(2)]
	case 2, 3:
		r.TTL = []int64{0, -1, 1, math.MinInt64}[g.Intn(4)]
		r.ID = 77
		return g.step(kindBrief, methodGrant, r)
	}
	step := g.step(kindCall, methodGrant, r)
	g.grants = append(g.grants, step.ID)
	if attach {
		g.attachable = append(g.attachable, step.ID)
	}
	return step
}

func (g *generator) step(kind, method string, message proto.Message) Step {
	g.nextID++
	return Step{ID: g.nextID, Kind: kind, Method: method, Message: message}
}

func (g *generator) call(method string, message proto.Message) Step {
	return g.step(kindCall, method, message)
}

// next draws one step.
func (g *generator) next() Step {
	switch n := g.Intn(1000); {
	case n < 210:
		return g.call(methodPut, g.put(true))
	case n < 270:
		return g.call(methodDelete, g.deleteRange())
	case n < 430:
		return g.call(methodRange, g.rangeRequest(false))
	case n < 500:
		return g.call(methodRangeStream, g.rangeRequest(true))
	case n < 690:
		return g.call(methodTxn, g.txn())
	case n < 700:
		return g.call(methodCompact, g.compaction())
	case n < 730:
		return g.grant()
	case n < 745:
		return g.call(methodRevoke, &pb.LeaseRevokeRequest{ID: g.leaseOf(g.grants)})
	case n < 760:
		return g.step(kindKeepAlive, methodKeepAlive, &pb.LeaseKeepAliveRequest{ID: g.leaseOf(g.grants)})
	case n < 780:
		return g.call(methodTTL, &pb.LeaseTimeToLiveRequest{ID: g.leaseOf(g.grants), Keys: g.one(2)})
	case n < 785:
		return g.call(methodLeases, &pb.LeaseLeasesRequest{})
	case n < 890:
		return g.watchStep()
	case n < 905:
		return g.call(methodHashKV, &pb.HashKVRequest{Revision: g.revision()})
	case n < 910:
		return g.call(methodStatus, &pb.StatusRequest{})
	case n < 915:
		return g.call(methodMembers, &pb.MemberListRequest{Linearizable: g.one(2)})
	case n < 920:
		return g.call(methodAlarm, &pb.AlarmRequest{Alarm: pb.AlarmType(g.Intn(3))})
	case n < 922:
		return g.largePut()
	}
	return g.malformed()
}

func (g *generator) compaction() *pb.CompactionRequest {
	revision := refNow - int64(g.Intn(60))
	switch g.Intn(8) {
	case 0:
		revision = g.revision()
	case 1:
		revision = refCompacted
	case 2:
		revision = refNow + int64(g.Intn(3))
	}
	return &pb.CompactionRequest{Revision: revision, Physical: g.one(3)}
}

// largePut is near the limit of a request, 1.5 MiB, on either side of it.
func (g *generator) largePut() Step {
	size := 1_572_864 + []int{-2000, 100, 2000}[g.Intn(3)]
	return g.call(methodPut, &pb.PutRequest{Key: []byte("huge"), Value: []byte(fmt.Sprintf("%s%d", refLarge, size))})
}

// sequence draws a whole sequence. Some end with a restart, an expiry or an alarm.
func (g *generator) sequence(length, number int) []Step {
	var steps []Step
	for range length {
		steps = append(steps, g.next())
	}
	at := func(step Step) {
		i := g.Intn(len(steps))
		steps = append(steps[:i:i], append([]Step{step}, steps[i:]...)...)
	}
	if number%4 == 1 {
		at(g.step(kindExpire, methodGrant, &pb.LeaseGrantRequest{TTL: 2}))
	}
	if number%4 == 2 {
		at(Step{Kind: kindRestart, Kill: number%8 == 2})
	}
	if number%4 == 3 {
		steps = append(steps, g.alarms()...)
	}
	return steps
}

// alarms raises an alarm on both, tries what it forbids and what not, and takes it away.
func (g *generator) alarms() []Step {
	kind := []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT}[g.Intn(2)]
	alarm := func(action pb.AlarmRequest_AlarmAction) Step {
		return g.call(methodAlarm, &pb.AlarmRequest{Action: action, Alarm: kind, MemberID: uint64(refMember)})
	}
	steps := []Step{alarm(pb.AlarmRequest_ACTIVATE), alarm(pb.AlarmRequest_GET)}
	for range 12 {
		switch g.Intn(6) {
		case 0:
			steps = append(steps, g.call(methodPut, g.put(true)))
		case 1:
			steps = append(steps, g.call(methodTxn, g.txn()))
		case 2:
			steps = append(steps, g.call(methodDelete, g.deleteRange()))
		case 3:
			steps = append(steps, g.call(methodRange, g.rangeRequest(false)))
		case 4:
			steps = append(steps, g.grant())
		default:
			steps = append(steps, g.call(methodStatus, &pb.StatusRequest{}))
		}
	}
	return append(steps, alarm(pb.AlarmRequest_DEACTIVATE), alarm(pb.AlarmRequest_GET))
}
