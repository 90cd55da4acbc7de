// Counts what was really asked and answered, per option and per error text; in a full run none may be zero.
package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Counts are the totals of a run, over all its workers.
type Counts struct {
	requests, watches, streams, events, restarts atomic.Int64

	lock  sync.Mutex
	hits  map[string]int // by option
	texts map[string]int // by error text
}

func newCounts() *Counts { return &Counts{hits: map[string]int{}, texts: map[string]int{}} }

func (c *Counts) hit(name string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.hits[name]++
}

func (c *Counts) text(name string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.texts[name]++
}

// seen counts one request that both servers answered.
func (c *Counts) seen(p *Pair, step Step, resolved proto.Message, answer Answer) {
	if answer.Code != codes.OK && (step.Kind != kindRaw || len(step.Raw) == 0) {
		c.text(strings.ReplaceAll(answer.Text, "\u00a0", " "))
	}
	if step.Method != "" && step.Kind != kindRaw {
		c.hit("method: " + step.Method)
	}
	if resolved != nil {
		c.options(p, resolved.ProtoReflect(), step.Method, 0)
	}
}

// options counts each field that is set, each value of an enum, and where a revision lies.
func (c *Counts) options(p *Pair, m protoreflect.Message, method string, depth int) {
	message := string(m.Descriptor().Name())
	if method == methodRangeStream {
		message += " (stream)"
	} else if message == "RangeRequest" && depth > 0 {
		message += " (txn)"
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := message + "." + string(field.Name())
		value := m.Get(field)
		switch {
		case field.Kind() == protoreflect.EnumKind && field.IsList():
			for j := range value.List().Len() {
				c.hit(name + "=" + enumName(field, value.List().Get(j).Enum()))
			}
		case field.Kind() == protoreflect.EnumKind:
			c.hit(name + "=" + enumName(field, value.Enum()))
		case !m.Has(field):
		case field.Kind() == protoreflect.MessageKind && field.IsList():
			c.hit(name)
			for j := range value.List().Len() {
				c.options(p, value.List().Get(j).Message(), method, depth+1)
			}
		case field.Kind() == protoreflect.MessageKind:
			c.hit(name)
			c.options(p, value.Message(), method, depth+1)
		default:
			c.hit(name)
			c.place(p, message, string(field.Name()), value)
		}
	}
	if txn, ok := m.Interface().(*pb.TxnRequest); ok {
		if levels(txn) >= 3 {
			c.hit("TxnRequest of three levels or more")
		}
		if len(txn.Compare)+len(txn.Success)+len(txn.Failure) == 0 {
			c.hit("TxnRequest, empty")
		}
		for _, compare := range txn.Compare {
			if compare.Target <= pb.Compare_LEASE && compare.Result <= pb.Compare_NOT_EQUAL {
				c.hit(fmt.Sprintf("Compare %v %v", compare.Target, compare.Result))
			}
		}
	}
	r, ok := m.Interface().(*pb.RangeRequest)
	if ok && r.SortTarget <= pb.RangeRequest_VALUE && r.SortOrder <= pb.RangeRequest_DESCEND {
		c.hit(fmt.Sprintf("%s %v %v", message, r.SortTarget, r.SortOrder))
	}
}

// place says where a revision lies, and which special bytes a key has.
func (c *Counts) place(p *Pair, message, field string, value protoreflect.Value) {
	name := message + "." + field
	if field == "revision" || field == "start_revision" {
		n := value.Int()
		switch {
		case n < 0:
			c.hit(name + ": negative")
		case n > p.now:
			c.hit(name + ": future")
		case n < p.compacted:
			c.hit(name + ": compacted")
		case n == p.compacted:
			c.hit(name + ": just compacted")
		case n == p.now:
			c.hit(name + ": current")
		default:
			c.hit(name + ": past")
		}
	}
	if field == "key" || field == "range_end" {
		switch text := string(value.Bytes()); {
		case text == "\x00", text == "\x00\x00", text == "\xff":
			c.hit(fmt.Sprintf("%s: %q", name, text))
		case len(text) == 65536:
			c.hit(name + ": 64 KiB")
		}
	}
	if field == "TTL" && value.Int() < 0 {
		c.hit(name + ": negative")
	}
}

func enumName(field protoreflect.FieldDescriptor, number protoreflect.EnumNumber) string {
	if value := field.Enum().Values().ByNumber(number); value != nil {
		return string(value.Name())
	}
	return "unknown"
}

func levels(t *pb.TxnRequest) int {
	most := 0
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			if child := op.GetRequestTxn(); child != nil {
				most = max(most, levels(child))
			}
		}
	}
	return most + 1
}

// expectedOptions names all that a full run must have hit.
func expectedOptions() []string {
	var names []string
	add := func(message proto.Message, suffix string) {
		descriptor := message.ProtoReflect().Descriptor()
		for i := range descriptor.Fields().Len() {
			field := descriptor.Fields().Get(i)
			name := string(descriptor.Name()) + suffix + "." + string(field.Name())
			if field.Kind() != protoreflect.EnumKind {
				names = append(names, name)
				continue
			}
			for j := range field.Enum().Values().Len() {
				names = append(names, name+"="+string(field.Enum().Values().Get(j).Name()))
			}
			if descriptor.Name() != "AlarmRequest" { // an unknown action ends etcd
				names = append(names, name+"=unknown")
			}
		}
	}
	for _, message := range []proto.Message{&pb.RangeRequest{}, &pb.PutRequest{}, &pb.DeleteRangeRequest{},
		&pb.TxnRequest{}, &pb.Compare{}, &pb.RequestOp{}, &pb.CompactionRequest{}, &pb.LeaseGrantRequest{},
		&pb.LeaseRevokeRequest{}, &pb.LeaseKeepAliveRequest{}, &pb.LeaseTimeToLiveRequest{}, &pb.WatchRequest{},
		&pb.WatchCreateRequest{}, &pb.WatchCancelRequest{}, &pb.HashKVRequest{}, &pb.AlarmRequest{},
		&pb.MemberListRequest{}} {
		add(message, "")
	}
	add(&pb.RangeRequest{}, " (stream)")
	add(&pb.RangeRequest{}, " (txn)")
	for _, where := range []string{"negative", "future", "compacted", "just compacted", "current", "past"} {
		for _, message := range []string{"RangeRequest", "RangeRequest (stream)", "RangeRequest (txn)",
			"CompactionRequest", "HashKVRequest"} {
			if message == "HashKVRequest" && where == "just compacted" {
				continue // differences.md, "HashKV"
			}
			names = append(names, message+".revision: "+where)
		}
		names = append(names, "WatchCreateRequest.start_revision: "+where)
	}
	for _, key := range []string{`"\x00"`, `"\x00\x00"`, `"\xff"`, "64 KiB"} {
		for _, message := range []string{"RangeRequest", "PutRequest", "DeleteRangeRequest", "Compare", "WatchCreateRequest"} {
			names = append(names, message+".key: "+key)
			if message != "PutRequest" {
				names = append(names, message+".range_end: "+key)
			}
		}
	}
	for target := range pb.Compare_CompareTarget(5) {
		for result := range pb.Compare_CompareResult(4) {
			names = append(names, fmt.Sprintf("Compare %v %v", target, result))
		}
	}
	for target := range pb.RangeRequest_SortTarget(5) {
		for order := range pb.RangeRequest_SortOrder(3) {
			names = append(names, fmt.Sprintf("RangeRequest %v %v", target, order))
			names = append(names, fmt.Sprintf("RangeRequest (txn) %v %v", target, order))
		}
	}
	for _, method := range []string{methodRange, methodRangeStream, methodPut, methodDelete, methodTxn, methodCompact,
		methodWatch, methodGrant, methodRevoke, methodKeepAlive, methodTTL, methodLeases, methodHashKV, methodStatus,
		methodAlarm, methodMembers} {
		names = append(names, "method: "+method)
	}
	for _, damage := range damages {
		names = append(names, "malformed: "+damage.name)
	}
	names = append(names, "LeaseGrantRequest.TTL: negative", "TxnRequest of three levels or more", "TxnRequest, empty",
		"malformed: unknown method or service", "lease: expired by time", "restart: SIGTERM", "restart: SIGKILL",
		"watch: cancel of an unknown id", "watch: ended by compaction", "watch: progress request that is answered",
		"watch: progress request that is not answered")
	return names
}

// expectedTexts are the error texts that apply to what Sternpost implements.
var expectedTexts = []string{
	"etcdserver: key is not provided",
	"etcdserver: key not found",
	"etcdserver: value is provided",
	"etcdserver: lease is provided",
	"etcdserver: too many operations in txn request",
	"etcdserver: duplicate key given in txn request",
	"etcdserver: invalid sort option",
	"etcdserver: mvcc: required revision has been compacted",
	"etcdserver: mvcc: required revision is a future revision",
	"etcdserver: mvcc: database space exceeded",
	"etcdserver: requested lease not found",
	"etcdserver: lease already exists",
	"etcdserver: too large lease TTL",
	"etcdserver: request is too large",
	"etcdserver: corrupt cluster",
	"RangeStream does not support custom sort orders",
	"RangeStream does not support revision filters",
	"watch: mvcc: watcher range is empty",
	"watch: mvcc: duplicate watch ID provided on the WatchStream",
	"watch: etcdserver: mvcc: required revision has been compacted",
}

// table prints all counts and returns the names of those that are zero but must not be.
func (c *Counts) table() (missing []string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, part := range []struct {
		title    string
		counts   map[string]int
		expected []string
	}{{"option", c.hits, expectedOptions()}, {"error text", c.texts, expectedTexts}} {
		names := slices.Clone(part.expected)
		for name := range part.counts {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Printf("\n%9s  %s\n", "answers", part.title)
		for _, name := range slices.Compact(names) {
			mark := ""
			if part.counts[name] == 0 {
				mark = "   <- never"
				missing = append(missing, name)
			}
			fmt.Printf("%9d  %s%s\n", part.counts[name], brief(name), mark)
		}
	}
	return missing
}
