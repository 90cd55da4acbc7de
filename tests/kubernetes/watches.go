// Check 7: a watch shows each change once and in order, whatever it is resumed from.
package main

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	watchedChanges = 10_000
	lastName       = "zz-last"
)

// change is an event without its object.
type change struct {
	kind     string
	name     string
	revision int64
}

func watches(t *test) {
	cached, uncached := t.both()
	path := t.configMaps()
	var begin int64
	var want []change
	t.part("10,000 random changes, seen by five watches", func(p *part) {
		begin = p.get(cached.admin, path).revision()
		type outcome struct {
			name string
			seen []change
			err  error
		}
		outcomes := make(chan outcome, 4)
		watching := 0
		for _, server := range []*apiserver{cached, uncached} {
			for _, span := range []int{watchedChanges * 2, 700} {
				watching++
				go func() {
					seen, err := follow(p, server.admin, path, begin, span)
					outcomes <- outcome{fmt.Sprintf("%s, resumed after %d", server.name, span), seen, err}
				}()
			}
		}
		writes := p.change(cached.admin, uncached.admin)
		want = p.storedSince(begin)
		p.holds(len(want) == writes+1, "the store has %d changes of %d", len(want), writes+1)
		for range watching {
			o := <-outcomes
			p.must(o.err, "the watch of %s", o.name)
			p.same(o.name, o.seen, want)
		}
		p.replays(want, state(p.get(cached.admin, path)))
		p.sees("%d changes after %d, four watches of the API like the store's", len(want), begin)
	})
	if t.failed > 0 {
		return
	}
	t.part("all of them again, afterwards, uncached", func(p *part) {
		seen, err := follow(p, uncached.admin, path, begin, 3000)
		p.must(err, "the watch")
		p.same("the watch", seen, want)
		p.sees("%d changes after %d", len(seen), begin)
	})
	compactedWatches(t, cached, uncached, begin)
	bookmarks(t, cached)
	initialEvents(t, cached, uncached)
}

// change makes the random changes, and at last creates what tells the watches that it was all.
func (p *part) change(clients ...*api) int {
	const writers = 16
	path, made := p.t.configMaps(), atomic.Int64{}
	seed := p.t.random.Uint64()
	err := each(writers, func(i int) error {
		random, there := rand.New(rand.NewPCG(seed, uint64(i))), map[string]bool{}
		for made.Add(1) <= watchedChanges {
			name, client := fmt.Sprintf("w%02d-%02d", i, random.IntN(30)), clients[random.IntN(len(clients))]
			method, target, kind := "PATCH", path+"/"+name, "application/merge-patch+json"
			var body any = object{"data": object{"v": strconv.FormatUint(random.Uint64(), 36)}}
			switch {
			case !there[name]:
				method, target, kind, body = "POST", path, "application/json", configMap(name, nil)
			case random.IntN(4) == 0:
				method, body = "DELETE", nil
			}
			got, err := client.sendAs(p.ctx, method, target, body, kind)
			if err != nil || got.code >= 300 {
				return fmt.Errorf("%s %s: %v: %v", method, target, err, got)
			}
			there[name] = method != "DELETE"
		}
		return nil
	})
	p.must(err, "a writer")
	p.create(clients[0], path, configMap(lastName, nil))
	return watchedChanges
}

// follow watches from a revision until the last object, and begins anew from the last event's after so many of them, or
// when the apiserver ends the watch, as it does with one that is slow.
func follow(p *part, client *api, path string, from int64, span int) ([]change, error) {
	var seen []change
	for {
		w, err := client.watch(p.ctx, path, "resourceVersion", strconv.FormatInt(from, 10))
		if err != nil {
			return seen, err
		}
		for range span {
			e, err := w.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				w.close()
				return seen, fmt.Errorf("after %d events, at %d: %w", len(seen), from, err)
			}
			from = e.Object.revision()
			seen = append(seen, change{e.Type, e.Object.name(), from})
			if e.Object.name() == lastName {
				w.close()
				return seen, nil
			}
		}
		w.close()
	}
}

// storedSince is what the store's own watch shows of the check's ConfigMaps after a revision.
func (p *part) storedSince(revision int64) []change {
	prefix := "/registry/configmaps/" + p.t.namespace + "/"
	var all []change
	for answer := range p.t.world.shared.store.client.Watch(p.ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
		p.must(answer.Err(), "the store's watch")
		for _, e := range answer.Events {
			c := change{"MODIFIED", strings.TrimPrefix(string(e.Kv.Key), prefix), e.Kv.ModRevision}
			if e.IsCreate() {
				c.kind = "ADDED"
			} else if e.Type == clientv3.EventTypeDelete {
				c.kind = "DELETED"
			}
			all = append(all, c)
			if c.name == lastName {
				return all
			}
		}
	}
	p.holds(false, "the store's watch ended")
	return nil
}

// same compares two runs of changes, and shows where they part.
func (p *part) same(name string, seen, want []change) {
	for i := range min(len(seen), len(want)) {
		p.holds(seen[i] == want[i], "%s: event %d is %v, want %v", name, i, seen[i], want[i])
	}
	p.holds(slices.Equal(seen, want), "%s: %d events, want %d", name, len(seen), len(want))
}

// replays carries the changes out and compares what comes of them.
func (p *part) replays(changes []change, want map[string]int64) {
	now := map[string]int64{}
	for _, c := range changes {
		_, exists := now[c.name]
		p.holds(exists == (c.kind != "ADDED"), "%v of what exists: %v", c, exists)
		if c.kind == "DELETED" {
			delete(now, c.name)
		} else {
			now[c.name] = c.revision
		}
	}
	p.holds(maps.Equal(now, want), "replayed: %d objects, listed: %d", len(now), len(want))
}

// compactedWatches begin where history no longer is.
func compactedWatches(t *test, cached, uncached *apiserver, begin int64) {
	path := t.configMaps()
	t.part("from a compacted revision, uncached", func(p *part) {
		for i := range 3 {
			p.create(cached.admin, path, configMap(fmt.Sprintf("below-%d", i), nil))
		}
		// Of an event at the floor, etcd no longer has what was there before; a creation does without.
		floor := p.create(cached.admin, path, configMap("floor", nil)).revision()
		o := p.create(cached.admin, path, configMap("above", nil))
		p.must(t.world.shared.store.compact(p.ctx, floor), "compaction")
		var got *answer
		for _, from := range []int64{begin, floor - 2} {
			got = p.first(uncached.admin, path, "resourceVersion", strconv.FormatInt(from, 10))
			p.holds(got.is(410, "Expired"), "from %d, compacted up to %d: got %v", from, floor, got)
		}
		// What follows the revision before the floor is the floor, and is there.
		for _, from := range []int64{floor - 1, floor} {
			w := p.watching(uncached.admin, path, "resourceVersion", strconv.FormatInt(from, 10))
			if from < floor {
				e := p.next(w)
				p.holds(e.Object.revision() == floor, "from %d: got %v, want %d", from, e, floor)
			}
			e := p.next(w)
			w.close()
			p.holds(e.Object.revision() == o.revision(), "from %d: got %v, want %d", from, e, o.revision())
		}
		p.sees("%v; from %d on it is there", got, floor)
	})
	t.part("from before a cache begins, which a start does", func(p *part) {
		cached.kill()
		p.must(cached.run(p.ctx), "another start")
		got := p.first(cached.admin, path, "resourceVersion", strconv.FormatInt(begin, 10))
		p.holds(got.is(410, "Expired"), "got %v", got)
		p.sees("%v", got)
	})
}
