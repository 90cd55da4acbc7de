// Watch streams: requests go to both servers, and each watch's history is compared as one list of events.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// watchLog is what one server sent for one watch.
type watchLog struct {
	id     int64
	events []*mvccpb.Event
	ends   []*pb.WatchResponse // cancellations: by the server, and then perhaps by the client
}

// watchSide is one server's half of a stream. All but stream and cancel is guarded by lock.
type watchSide struct {
	stream pb.Watch_WatchClient
	cancel context.CancelFunc

	lock     sync.Mutex
	changed  chan struct{} // closed and replaced whenever something arrived
	creates  []*pb.WatchResponse
	watches  []*watchLog
	byID     map[int64]*watchLog
	progress []int64 // revisions of the answers to manual requests
	odd      error   // a response that no rule allows
	end      error   // why the stream ended
}

// watchModel is what the judge expects of a watch that both servers created.
type watchModel struct {
	request  *pb.WatchCreateRequest // resolved
	id       int64
	next     int64 // first revision that is not counted yet
	expected int   // events up to then
	compared int
	ends     int // cancellations that must come
	live     bool
	overdue  bool // ended by compaction, and not yet cancelled by the client
}

type watchStream struct {
	sides    [2]*watchSide
	creates  int
	compared int // creates compared
	models   []*watchModel
	asked    int // progress requests that are to be answered
	falsify  *Falsifier
}

func (p *Pair) open(ctx context.Context, number int) error {
	if old := p.streams[number]; old != nil {
		return nil
	}
	stream, err := p.openStream(ctx)
	if err == nil {
		p.streams[number] = stream
		p.counts.streams.Add(1)
	}
	return err
}

func (p *Pair) openStream(ctx context.Context) (*watchStream, error) {
	w := &watchStream{falsify: p.falsify}
	for side := range 2 {
		ctx, cancel := context.WithCancel(ctx)
		stream, err := pb.NewWatchClient(p.conns[side]).Watch(ctx)
		if err != nil {
			cancel()
			return nil, err
		}
		half := &watchSide{stream: stream, cancel: cancel, changed: make(chan struct{}), byID: map[int64]*watchLog{}}
		w.sides[side] = half
		falsify := p.falsify
		if side == etcd {
			falsify = nil
		}
		go half.receive(falsify)
	}
	return w, nil
}

func (w *watchStream) close() {
	for _, side := range w.sides {
		side.cancel()
	}
}

func (w *watchSide) receive(falsify *Falsifier) {
	for {
		response, err := w.stream.Recv()
		w.lock.Lock()
		if err != nil {
			w.end = err
		} else {
			if falsify != nil {
				falsify.watch(response)
			}
			w.add(response)
		}
		close(w.changed)
		w.changed = make(chan struct{})
		w.lock.Unlock()
		if err != nil {
			return
		}
	}
}

// add puts one response where it belongs.
func (w *watchSide) add(r *pb.WatchResponse) {
	switch {
	case r.Created:
		w.creates = append(w.creates, r)
		if !r.Canceled {
			log := &watchLog{id: r.WatchId}
			w.watches = append(w.watches, log)
			w.byID[r.WatchId] = log
		}
		return
	case r.WatchId == -1 && !r.Canceled && len(r.Events) == 0:
		w.progress = append(w.progress, r.Header.GetRevision())
		return
	}
	log := w.byID[r.WatchId]
	if log == nil {
		w.odd = fmt.Errorf("a response for a watch that was not created: %s", brief(readable(r)))
		return
	}
	if len(r.Events) > 0 {
		last := r.Events[len(r.Events)-1].Kv.ModRevision
		if r.Header.GetRevision() < last {
			w.odd = fmt.Errorf("header %d is older than the event %d", r.Header.GetRevision(), last)
		}
		log.events = append(log.events, r.Events...)
	}
	if r.Canceled {
		log.ends = append(log.ends, r)
	}
}

// await waits until ready holds, which is called under the lock, and fails when too much time goes by.
func (w *watchSide) await(limit time.Duration, what string, ready func() bool) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		w.lock.Lock()
		done, changed, end, odd := ready(), w.changed, w.end, w.odd
		w.lock.Unlock()
		switch {
		case odd != nil:
			return odd
		case done:
			return nil
		case end != nil:
			return fmt.Errorf("%s: the stream ended: %w", what, end)
		}
		select {
		case <-changed:
		case <-timer.C:
			return fmt.Errorf("%s: did not come within %v", what, limit)
		}
	}
}

// awaitBoth is await on both sides; a failure of one is a difference.
func (w *watchStream) awaitBoth(what string, ready func(*watchSide) bool) error {
	limit := 20 * time.Second
	if w.falsify != nil {
		limit = 2 * time.Second
	}
	var errs [2]error
	both(func(side int) {
		errs[side] = w.sides[side].await(limit, what, func() bool { return ready(w.sides[side]) })
	})
	if errors.Join(errs[:]...) == nil {
		return nil
	}
	return &Difference{What: what, Answers: [2]string{fmt.Sprint(errs[etcd]), fmt.Sprint(errs[sternpost])}}
}

// watchRequest sends one request on a stream and waits for what it must bring.
func (p *Pair) watchRequest(ctx context.Context, step Step) error {
	w := p.streams[step.Stream]
	if w == nil {
		return nil // its opening was left out
	}
	resolved := p.resolve(etcd, step.Message).(*pb.WatchRequest)
	switch request := resolved.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		return p.create(step, w, resolved, request.CreateRequest)
	case *pb.WatchRequest_CancelRequest:
		// What is under way is delivered first, or it would depend on time whether it still is.
		if err := p.catchUp(ctx); err != nil {
			return err
		}
		p.counts.requests.Add(1)
		p.counts.seen(p, step, resolved, Answer{})
		known := false
		for _, model := range w.models {
			if model.id == request.CancelRequest.WatchId && (model.live || model.overdue) {
				model.live, model.overdue = false, false
				model.ends++
				known = true
			}
		}
		if !known {
			p.counts.hit("watch: cancel of an unknown id")
		}
		if err := p.sendBoth(w, resolved); err != nil {
			return err
		}
		return p.settle(w)
	case *pb.WatchRequest_ProgressRequest:
		return p.manualProgress(ctx, step, w, resolved)
	}
	p.counts.requests.Add(1)
	return p.sendBoth(w, resolved)
}

func (p *Pair) sendBoth(w *watchStream, request *pb.WatchRequest) error {
	for side := range 2 {
		if err := w.sides[side].stream.Send(request); err != nil {
			return &Difference{What: "a watch stream ended", Answers: [2]string{fmt.Sprint(side), err.Error()}}
		}
	}
	return nil
}

func (p *Pair) create(step Step, w *watchStream, resolved *pb.WatchRequest, request *pb.WatchCreateRequest) error {
	p.counts.requests.Add(1)
	if err := p.sendBoth(w, resolved); err != nil {
		return err
	}
	w.creates++
	err := w.awaitBoth("the answer to a create", func(s *watchSide) bool { return len(s.creates) >= w.creates })
	if err != nil {
		return err
	}
	var created [2]*pb.WatchResponse
	for side, half := range w.sides {
		half.lock.Lock()
		created[side] = proto.Clone(half.creates[w.creates-1]).(*pb.WatchResponse)
		half.lock.Unlock()
	}
	answers := [2]Answer{{Reply: created[etcd]}, {Reply: created[sternpost]}}
	p.counts.seen(p, step, resolved, answers[etcd])
	if created[etcd].Canceled {
		p.counts.text("watch: " + created[etcd].CancelReason)
	} else {
		model := &watchModel{request: request, id: created[etcd].WatchId, next: request.StartRevision, live: true}
		if model.next == 0 {
			model.next = created[etcd].Header.Revision + 1
		}
		p.lagging = p.lagging || model.next <= p.now
		if model.next < p.compacted {
			model.live, model.overdue, model.ends = false, true, 1
			p.counts.hit("watch: ended by compaction")
		}
		w.models = append(w.models, model)
		p.counts.watches.Add(1)
	}
	return p.compare(step, resolved, answers)
}

// manualProgress asks until both have answered, or makes sure that neither does.
func (p *Pair) manualProgress(ctx context.Context, step Step, w *watchStream, request *pb.WatchRequest) error {
	if err := p.catchUp(ctx); err != nil {
		return err
	}
	live, future := 0, false
	for _, model := range w.models {
		if model.overdue {
			return nil // differences.md, "manual progress after a watch was cancelled by compaction"
		}
		if model.live {
			live++
			future = future || model.request.StartRevision > p.now
		}
	}
	p.counts.requests.Add(1)
	p.counts.seen(p, step, request, Answer{})
	if live == 0 || future {
		p.counts.hit("watch: progress request that is not answered")
		if err := p.sendBoth(w, request); err != nil {
			return err
		}
		// An answer to it makes the next sync fail. A create that is refused shows that both have read it.
		refused := &pb.WatchCreateRequest{Key: []byte{0}, StartRevision: -1}
		message := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: refused}}
		return p.create(Step{Kind: kindWatch, Method: methodWatch, Message: message}, w, message, refused)
	}
	w.asked++
	p.counts.hit("watch: progress request that is answered")
	var errs [2]error
	var revisions [2]int64
	both(func(side int) {
		half := w.sides[side]
		half.lock.Lock()
		before := len(half.progress)
		half.lock.Unlock()
		for try := 0; try < 40; try++ {
			if errs[side] = half.stream.Send(request); errs[side] != nil {
				return
			}
			// A server whose watches have just caught up may leave a request without an answer.
			errs[side] = half.await(250*time.Millisecond, "the answer to a progress request",
				func() bool { return len(half.progress) > before })
			if errs[side] == nil {
				half.lock.Lock()
				revisions[side] = half.progress[len(half.progress)-1]
				half.lock.Unlock()
				return
			}
		}
	})
	if errors.Join(errs[:]...) != nil {
		return &Difference{What: "manual progress", Answers: [2]string{fmt.Sprint(errs[0]), fmt.Sprint(errs[1])}}
	}
	if revisions[etcd] != revisions[sternpost] {
		return &Difference{What: "the revision of manual progress",
			Answers: [2]string{fmt.Sprint(revisions[0]), fmt.Sprint(revisions[1])}}
	}
	return nil
}

// matches says whether a watch is to get an event.
func (m *watchModel) matches(event *mvccpb.Event) bool {
	for _, filter := range m.request.Filters {
		if filter == pb.WatchCreateRequest_NOPUT && event.Type == mvccpb.PUT ||
			filter == pb.WatchCreateRequest_NODELETE && event.Type == mvccpb.DELETE {
			return false
		}
	}
	key := m.request.Key
	if len(key) == 0 {
		key = []byte{0}
	}
	return covers(key, m.request.RangeEnd, event.Kv.Key)
}

// covers says whether key lies in [from, end), with the API's two special ends.
func covers(from, end, key []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(from, key)
	case bytes.Equal(end, []byte{0}):
		return bytes.Compare(key, from) >= 0
	}
	return bytes.Compare(key, from) >= 0 && bytes.Compare(key, end) < 0
}

// farFuture is a start revision that no run reaches.
const farFuture = int64(math.MaxInt64 / 2)
