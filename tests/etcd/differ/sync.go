// The barrier of the watches: waits until both servers have delivered all that is due, then compares it.
package main

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// oracle is a watch on the whole keyspace. What it gets from etcd says how many events every other watch is due.
type oracle struct {
	stream *watchStream
	taken  int             // events of the stream that are in history
	events []*mvccpb.Event // since the first revision, over restarts
}

// startOracle begins at the first revision that is not known yet.
func (p *Pair) startOracle(ctx context.Context) error {
	next := int64(2)
	old := p.oracle
	p.oracle = &oracle{}
	if old != nil {
		p.oracle.events = old.events
		if n := len(old.events); n > 0 {
			next = old.events[n-1].Kv.ModRevision + 1
		}
	}
	stream, err := p.openStream(ctx)
	if err != nil {
		return err
	}
	p.oracle.stream = stream
	request := &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: next}
	message := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}
	return p.create(Step{Kind: kindWatch, Method: methodWatch, Message: message}, stream, message, request)
}

// sync brings all watches up to the newest revision and compares them.
func (p *Pair) sync(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	half := p.oracle.stream.sides[etcd]
	reached := func(s *watchSide) bool {
		events := s.watches[0].events
		if len(events) == 0 {
			n := len(p.oracle.events)
			return p.now <= 1 || n > 0 && p.oracle.events[n-1].Kv.ModRevision >= p.now
		}
		return events[len(events)-1].Kv.ModRevision >= p.now
	}
	if err := p.oracle.stream.awaitBoth(fmt.Sprintf("the events up to revision %d", p.now), reached); err != nil {
		return err
	}
	half.lock.Lock()
	p.oracle.events = append(p.oracle.events, half.watches[0].events[p.oracle.taken:]...)
	p.oracle.taken = len(half.watches[0].events)
	half.lock.Unlock()
	if err := p.settle(p.oracle.stream); err != nil {
		return err
	}
	for _, stream := range p.streams {
		if err := p.settle(stream); err != nil {
			return err
		}
	}
	return nil
}

// catchUp is sync, and waits as well until no watch is reading history, which those that are due nothing do not show.
// A watch from the past on the newest event is the probe: etcd reads history for all such watches at once.
func (p *Pair) catchUp(ctx context.Context) error {
	if err := p.sync(ctx); err != nil || !p.lagging || len(p.oracle.events) == 0 {
		return err
	}
	newest := p.oracle.events[len(p.oracle.events)-1].Kv
	w := p.oracle.stream
	request := &pb.WatchCreateRequest{Key: newest.Key, StartRevision: newest.ModRevision}
	message := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}
	if err := p.create(Step{Kind: kindWatch, Method: methodWatch, Message: message}, w, message, request); err != nil {
		return err
	}
	if err := p.settle(w); err != nil {
		return err
	}
	probe := w.models[len(w.models)-1]
	probe.live = false
	probe.ends++
	p.lagging = false
	err := p.sendBoth(w, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
		CancelRequest: &pb.WatchCancelRequest{WatchId: probe.id}}})
	if err != nil {
		return err
	}
	return p.settle(w)
}

// settle waits for all that one stream is due, and compares it.
func (p *Pair) settle(w *watchStream) error {
	for _, model := range w.models {
		if !model.live {
			continue
		}
		for i := p.after(model.next); i < len(p.oracle.events); i++ {
			if model.matches(p.oracle.events[i]) {
				model.expected++
			}
		}
		model.next = max(model.next, p.now+1)
	}
	err := w.awaitBoth("the events and cancellations that are due", func(s *watchSide) bool {
		for i, model := range w.models {
			if len(s.watches[i].events) < model.expected || len(s.watches[i].ends) < model.ends {
				return false
			}
		}
		return true
	})
	if err != nil {
		return w.explain(err)
	}
	for _, half := range w.sides {
		half.lock.Lock()
		defer half.lock.Unlock()
	}
	e, s := w.sides[etcd], w.sides[sternpost]
	if len(e.creates) != len(s.creates) || len(e.creates) != w.creates {
		return &Difference{What: "the number of answers to creates",
			Answers: [2]string{fmt.Sprint(len(e.creates)), fmt.Sprint(len(s.creates))}}
	}
	if w.asked == 0 && len(e.progress)+len(s.progress) > 0 {
		return &Difference{What: "an answer to a progress request that none is due",
			Answers: [2]string{fmt.Sprint(e.progress), fmt.Sprint(s.progress)}}
	}
	for i, model := range w.models {
		if err := p.compareWatch(model, e.watches[i], s.watches[i]); err != nil {
			return err
		}
	}
	return nil
}

// after is the index of the oracle's first event of the revision or a later one.
func (p *Pair) after(revision int64) int {
	i := len(p.oracle.events)
	for i > 0 && p.oracle.events[i-1].Kv.ModRevision >= revision {
		i--
	}
	return i
}

// explain adds to a missing delivery which watch lacks what.
func (w *watchStream) explain(err error) error {
	difference, ok := err.(*Difference)
	if !ok {
		return err
	}
	for side, half := range w.sides {
		half.lock.Lock()
		for i, model := range w.models {
			events, ends := len(half.watches[i].events), len(half.watches[i].ends)
			if events < model.expected || ends < model.ends {
				difference.Answers[side] += fmt.Sprintf("\n    watch %d { %s }: %d of %d events, %d of %d cancellations",
					model.id, readable(model.request), events, model.expected, ends, model.ends)
			}
		}
		half.lock.Unlock()
	}
	return difference
}

// compareWatch compares what arrived since the last time. The headers of events are not compared:
// differences.md, "events of a watch that catches up"; add has checked that they are not too old.
func (p *Pair) compareWatch(model *watchModel, e, s *watchLog) error {
	what := fmt.Sprintf("watch %d { %s }", model.id, readable(model.request))
	if len(e.events) != len(s.events) || len(e.events) != model.expected || len(e.ends) != len(s.ends) {
		return &Difference{What: what + fmt.Sprintf(": %d events are due", model.expected), Answers: [2]string{
			fmt.Sprintf("%d events, %d cancellations", len(e.events), len(e.ends)),
			fmt.Sprintf("%d events, %d cancellations", len(s.events), len(s.ends))}}
	}
	for ; model.compared < len(e.events); model.compared++ {
		a, b := proto.Clone(e.events[model.compared]), proto.Clone(s.events[model.compared])
		p.normalise(etcd, a)
		p.normalise(sternpost, b)
		if field := firstDifference(a.ProtoReflect(), b.ProtoReflect(), ""); field != "" {
			return &Difference{What: fmt.Sprintf("%s, event %d, %s", what, model.compared, field),
				Answers: [2]string{brief(readable(a)), brief(readable(b))}}
		}
		p.counts.events.Add(1)
	}
	for i := range e.ends {
		a, b := proto.Clone(e.ends[i]), proto.Clone(s.ends[i])
		p.normalise(etcd, a)
		p.normalise(sternpost, b)
		if field := firstDifference(a.ProtoReflect(), b.ProtoReflect(), ""); field != "" {
			return &Difference{What: fmt.Sprintf("%s, cancellation, %s", what, field),
				Answers: [2]string{brief(readable(a)), brief(readable(b))}}
		}
	}
	return nil
}
