// Falsification: alters one thing in what Sternpost answered, which the comparison must notice.
package main

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Falsifier alters one reply, the first to which its kind applies after some were let pass.
type Falsifier struct {
	kind string
	pass int // how many are let pass

	lock sync.Mutex
	done bool
}

// falsifications by name; each says whether it applied. One of the two functions is nil.
var falsifications = []struct {
	name   string
	answer func(a *Answer) bool
	watch  func(r *pb.WatchResponse) bool
}{
	{name: "a count", answer: func(a *Answer) bool {
		return onRange(a, func(r *pb.RangeResponse) bool { r.Count++; return true })
	}},
	{name: "more", answer: func(a *Answer) bool {
		return onRange(a, func(r *pb.RangeResponse) bool { r.More = !r.More; return true })
	}},
	{name: "a mod_revision", answer: func(a *Answer) bool {
		return onKey(a, func(kv *mvccpb.KeyValue) bool { kv.ModRevision--; return true })
	}},
	{name: "a version", answer: func(a *Answer) bool {
		return onKey(a, func(kv *mvccpb.KeyValue) bool { kv.Version++; return true })
	}},
	{name: "a byte of a value", answer: func(a *Answer) bool {
		return onKey(a, func(kv *mvccpb.KeyValue) bool {
			if len(kv.Value) > 0 {
				kv.Value[len(kv.Value)-1] ^= 1
			}
			return len(kv.Value) > 0
		})
	}},
	{name: "a key left out", answer: func(a *Answer) bool {
		return onRange(a, func(r *pb.RangeResponse) bool {
			if len(r.Kvs) > 0 {
				r.Kvs = r.Kvs[1:]
				return true
			}
			return false
		})
	}},
	{name: "the revision of a header", answer: func(a *Answer) bool {
		reply, ok := a.Reply.(interface{ GetHeader() *pb.ResponseHeader })
		if ok && reply.GetHeader() != nil {
			reply.GetHeader().Revision++
			return true
		}
		return false
	}},
	{name: "an error's text", answer: func(a *Answer) bool {
		a.Text += "."
		return a.Code != codes.OK
	}},
	{name: "an error's code", answer: func(a *Answer) bool {
		if a.Code == codes.OK {
			return false
		}
		a.Code = codes.Unknown
		return true
	}},
	{name: "a transaction's outcome", answer: func(a *Answer) bool {
		reply, ok := a.Reply.(*pb.TxnResponse)
		if ok {
			reply.Succeeded = !reply.Succeeded
		}
		return ok
	}},
	{name: "a previous value left out", answer: func(a *Answer) bool {
		reply, ok := a.Reply.(*pb.PutResponse)
		if ok && reply.PrevKv != nil {
			reply.PrevKv = nil
			return true
		}
		return false
	}},
	{name: "the number of deleted keys", answer: func(a *Answer) bool {
		reply, ok := a.Reply.(*pb.DeleteRangeResponse)
		if ok {
			reply.Deleted++
		}
		return ok
	}},
	{name: "a TTL", answer: func(a *Answer) bool {
		reply, ok := a.Reply.(*pb.LeaseGrantResponse)
		if ok {
			reply.TTL++
		}
		return ok
	}},
	{name: "a hash", answer: func(a *Answer) bool {
		reply, ok := a.Reply.(*pb.HashKVResponse)
		if ok {
			reply.Hash ^= 1
		}
		return ok
	}},
	{name: "an event dropped", watch: func(r *pb.WatchResponse) bool {
		if len(r.Events) == 0 {
			return false
		}
		r.Events = r.Events[1:]
		return true
	}},
	{name: "an event doubled", watch: func(r *pb.WatchResponse) bool {
		if len(r.Events) == 0 {
			return false
		}
		r.Events = append(r.Events, r.Events[len(r.Events)-1])
		return true
	}},
	{name: "two events exchanged", watch: func(r *pb.WatchResponse) bool {
		if len(r.Events) < 2 || proto.Equal(r.Events[0], r.Events[1]) {
			return false
		}
		r.Events[0], r.Events[1] = r.Events[1], r.Events[0]
		return true
	}},
	{name: "an event's type", watch: func(r *pb.WatchResponse) bool {
		if len(r.Events) == 0 {
			return false
		}
		r.Events[0].Type ^= 1
		return true
	}},
	{name: "the compact_revision of a watch", watch: func(r *pb.WatchResponse) bool {
		r.CompactRevision++
		return r.CompactRevision > 1
	}},
	{name: "the reason of a refused watch", watch: func(r *pb.WatchResponse) bool {
		if r.CancelReason == "" {
			return false
		}
		r.CancelReason += "."
		return true
	}},
}

func onRange(a *Answer, alter func(*pb.RangeResponse) bool) bool {
	switch reply := a.Reply.(type) {
	case *pb.RangeResponse:
		return alter(reply)
	case *pb.RangeStreamResponse:
		return reply.RangeResponse != nil && alter(reply.RangeResponse)
	}
	return false
}

func onKey(a *Answer, alter func(*mvccpb.KeyValue) bool) bool {
	return onRange(a, func(r *pb.RangeResponse) bool { return len(r.Kvs) > 0 && alter(r.Kvs[0]) })
}

// answer alters an answer to a call, once.
func (f *Falsifier) answer(a *Answer) {
	for _, one := range falsifications {
		if one.name != f.kind || one.answer == nil {
			continue
		}
		altered := Answer{Code: a.Code, Text: a.Text, Reply: proto.Clone(a.Reply)}
		if f.now(func() bool { return one.answer(&altered) }) {
			*a = altered
		}
	}
}

// watch alters a response on a watch stream, once.
func (f *Falsifier) watch(r *pb.WatchResponse) {
	for _, one := range falsifications {
		if one.name != f.kind || one.watch == nil {
			continue
		}
		altered := proto.Clone(r).(*pb.WatchResponse)
		if f.now(func() bool { return one.watch(altered) }) {
			proto.Reset(r)
			proto.Merge(r, altered)
		}
	}
}

// now applies at most once, after the number that is let pass.
func (f *Falsifier) now(apply func() bool) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.done || !apply() {
		return false
	}
	if f.pass--; f.pass >= 0 {
		return false
	}
	f.done = true
	fmt.Printf("falsified: %s\n", f.kind)
	return true
}
