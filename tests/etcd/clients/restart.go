// This file holds the scenarios that restart the server or compact it, or whose client has a dead endpoint.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func compaction(t *test) {
	first := t.put("a", "1")
	for i := range 20 {
		t.put(fmt.Sprint("p", i), "1")
	}
	page, err := t.client.Get(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithLimit(5))
	t.must(err, "page")
	at := page.Header.Revision
	last := t.put("a", "2")
	_, err = t.client.Compact(t.ctx, last, clientv3.WithCompactPhysical())
	t.must(err, "compact")
	next := string(page.Kvs[4].Key) + "\x00"
	_, err = t.client.Get(t.ctx, next, clientv3.WithRange(clientv3.GetPrefixRangeEnd(t.prefix)), clientv3.WithRev(at))
	t.is(err, rpctypes.ErrCompacted, "a page of a compacted revision")
	_, err = t.client.Txn(t.ctx).Then(clientv3.OpGet(t.prefix+"a", clientv3.WithRev(first))).Commit()
	t.is(err, rpctypes.ErrCompacted, "a transaction that reads a compacted revision")
	_, err = t.client.Compact(t.ctx, last)
	t.is(err, rpctypes.ErrCompacted, "compact again")
	seen := <-t.client.Watch(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithRev(first))
	t.ok(errors.Is(seen.Err(), rpctypes.ErrCompacted) && seen.CompactRevision == last && seen.Canceled, "watch: %+v", seen)
	get, err := t.client.Get(t.ctx, t.prefix+"a", clientv3.WithRev(last))
	t.must(err, "get")
	t.ok(string(get.Kvs[0].Value) == "2", "what is not older stays: %v", get.Kvs)
	collect(t, t.client.Watch(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithRev(last)), 1)
}

// written is what the writers know: each value is put once, so that a put whose outcome is unknown is found again.
type written struct {
	mutex        sync.Mutex
	acknowledged map[string]int64 // by value, the revision
	unknown      map[string]bool
}

func restarts(t *test) {
	const writers = 3
	begin := t.put("begin", "begin")
	w := &written{acknowledged: map[string]int64{}, unknown: map[string]bool{}}
	stop := make(chan struct{})
	var group, watching sync.WaitGroup
	for i := range writers {
		group.Go(func() { write(t, w, i, stop) })
	}
	watches := make([]seenEvents, 2)
	for i := range watches {
		watching.Go(func() {
			defer t.recovered()
			watches[i].follow(t, begin, i == 0)
		})
	}
	for i := range 6 {
		w.grow(t, 30)
		err := t.server.Kill
		if i%2 == 1 {
			err = t.server.Stop
		}
		t.ok(err() == nil, "end %d", i)
		t.must(t.server.Run(t.ctx), "start %d", i)
	}
	w.grow(t, 30)
	close(stop)
	group.Wait()
	for tries := 0; ; tries++ {
		_, err := t.client.Put(t.ctx, t.prefix+"~end", "end")
		if err == nil {
			break
		}
		t.ok(tries < 20, "last put: %v", err)
	}
	watching.Wait()
	for i := range watches {
		watches[i].check(t, w)
	}
	t.ok(len(w.acknowledged) >= 7*30, "writers got %d puts through", len(w.acknowledged))
}

// grow waits until n more puts are acknowledged.
func (w *written) grow(t *test, n int) {
	w.mutex.Lock()
	before := len(w.acknowledged)
	w.mutex.Unlock()
	for {
		w.mutex.Lock()
		now := len(w.acknowledged)
		w.mutex.Unlock()
		if now >= before+n {
			return
		}
		select {
		case <-t.ctx.Done():
			t.must(t.ctx.Err(), "%d puts more", n)
		case <-time.After(time.Millisecond):
		}
	}
}

func write(t *test, w *written, writer int, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-t.ctx.Done():
			return
		default:
		}
		value := fmt.Sprintf("%d-%06d", writer, i)
		ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
		put, err := t.client.Put(ctx, fmt.Sprintf("%s%d/%d", t.prefix, writer, i%3), value)
		cancel()
		w.mutex.Lock()
		if err == nil {
			w.acknowledged[value] = put.Header.Revision
		} else {
			w.unknown[value] = true
		}
		w.mutex.Unlock()
	}
}

// seenEvents is what one watch delivered.
type seenEvents struct {
	events   []*clientv3.Event
	previous bool
}

// follow watches from the first revision to the last put, over all restarts.
func (s *seenEvents) follow(t *test, from int64, previous bool) {
	s.previous = previous
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithProgressNotify(), clientv3.WithFragment()}
	if previous {
		options = append(options, clientv3.WithPrevKV())
	}
	for seen := range t.client.Watch(t.ctx, t.prefix, options...) {
		t.must(seen.Err(), "watch")
		s.events = append(s.events, seen.Events...)
		if n := len(seen.Events); n > 0 && strings.HasSuffix(string(seen.Events[n-1].Kv.Key), "~end") {
			return
		}
	}
	t.ok(false, "the watch ended after %d events", len(s.events))
}

// check holds what was seen against what was written: in order, nothing twice, nothing lost, nothing made up.
func (s *seenEvents) check(t *test, w *written) {
	seen := map[string]int64{}
	newest := map[string]*clientv3.Event{}
	last := int64(0)
	for _, event := range s.events {
		key, value := string(event.Kv.Key), string(event.Kv.Value)
		t.ok(event.Kv.ModRevision > last, "revision %d after %d", event.Kv.ModRevision, last)
		last = event.Kv.ModRevision
		before := newest[key]
		if before != nil {
			t.ok(event.Kv.Version == before.Kv.Version+1, "%s: version %d after %d", key, event.Kv.Version, before.Kv.Version)
			// One writer per key counts up.
			t.ok(value > string(before.Kv.Value), "%s: %s after %s", key, value, before.Kv.Value)
		}
		if s.previous && before != nil {
			t.ok(event.PrevKv != nil && event.PrevKv.ModRevision == before.Kv.ModRevision, "%s: previous %v", key, event.PrevKv)
		}
		newest[key] = event
		seen[value] = event.Kv.ModRevision
		_, acknowledged := w.acknowledged[value]
		t.ok(acknowledged || w.unknown[value] || value == "begin" || value == "end", "%s was never written", value)
	}
	for value, revision := range w.acknowledged {
		t.ok(seen[value] == revision, "%s: acknowledged at %d, seen at %d", value, revision, seen[value])
	}
}

func deadEndpoint(t *test) {
	client := t.connect("127.0.0.1:1", t.server.Endpoint, "127.0.0.1:2")
	defer client.Close()
	watch := client.Watch(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	for i := range 30 {
		_, err := client.Put(t.ctx, fmt.Sprint(t.prefix, i), "1")
		t.ok(err == nil, "put with two dead endpoints: %v", err)
		_, err = client.Get(t.ctx, fmt.Sprint(t.prefix, i))
		t.ok(err == nil, "get with two dead endpoints: %v", err)
	}
	t.ok(len(collect(t, watch, 30)) == 30, "watch with two dead endpoints")
}
