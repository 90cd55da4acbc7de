// Check 10: events expire, many of them by one lease, and watchers see them go.
package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	eventTTL     = 60 * time.Second
	perLease     = 1000 // events that an apiserver gives one lease
	sharedFor    = 3    // seconds for which it gives the same: a twentieth of the TTL
	goneBy       = 130 * time.Second
	shortEvents  = 1500
	writtenAgain = "event-0000"
)

// seen are the events of one name that a watch showed.
type seen struct {
	kinds    []string
	revision int64 // of the last
	when     time.Time
}

// gathered is a watch that runs for the length of a check.
type gathered struct {
	sync.Mutex
	byName map[string]seen
	err    error
}

func (g *gathered) run(w *watcher) {
	for {
		e, err := w.next()
		g.Lock()
		if err != nil {
			g.err = err
			g.Unlock()
			return
		}
		was := g.byName[e.Object.name()]
		g.byName[e.Object.name()] = seen{append(was.kinds, e.Type), e.Object.revision(), time.Now()}
		g.Unlock()
	}
}

// gone counts the names whose last event is a deletion.
func (g *gathered) gone(p *part) int {
	g.Lock()
	defer g.Unlock()
	p.must(g.err, "a watch that showed %d names", len(g.byName))
	count := 0
	for _, s := range g.byName {
		if s.kinds[len(s.kinds)-1] == "DELETED" {
			count++
		}
	}
	return count
}

func expiry(t *test) {
	c, server := t.alone(options{}, "--event-ttl="+eventTTL.String())
	n, path := t.scaled(shortEvents), t.in("events")
	prefix := "/registry/events/" + t.namespace + "/"
	stored := func(p *part) *clientv3.GetResponse {
		got, err := c.store.client.Get(p.ctx, prefix, clientv3.WithPrefix())
		p.must(err, "the store's events")
		return got
	}
	// The same events under two names of their group: each has a watch of its own.
	paths := []string{path, "/apis/events.k8s.io/v1/namespaces/" + t.namespace + "/events"}
	watches := []*gathered{{byName: map[string]seen{}}, {byName: map[string]seen{}}}
	leases := map[int64][]string{}
	asked := make([]time.Time, n)
	var begin int64
	t.part(fmt.Sprintf("%d events, few leases", n), func(p *part) {
		begin = p.get(server.admin, path).revision()
		for i, g := range watches {
			w, err := server.admin.watch(p.ctx, paths[i], "resourceVersion", fmt.Sprint(begin))
			p.must(err, "a watch on %s", paths[i])
			go g.run(w)
		}
		began := time.Now()
		const writers = 8
		p.must(each(writers, func(w int) error {
			for i := w; i < n; i += writers {
				asked[i] = time.Now()
				got, err := server.admin.send(p.ctx, "POST", path, happened(t.namespace, fmt.Sprintf("event-%04d", i)))
				if err != nil || got.code != 201 {
					return fmt.Errorf("%v: %v", err, got)
				}
			}
			return nil
		}), "an event")
		most := int(time.Since(began).Seconds())/sharedFor + n/perLease + 2
		for _, kv := range stored(p).Kvs {
			p.holds(kv.Lease != 0, "%s has no lease", kv.Key)
			leases[kv.Lease] = append(leases[kv.Lease], string(kv.Key))
		}
		p.holds(len(leases) <= most, "%d leases, want at most %d", len(leases), most)
		count := 0
		for id, keys := range leases {
			lease, err := c.store.client.TimeToLive(p.ctx, clientv3.LeaseID(id), clientv3.WithAttachedKeys())
			p.must(err, "the lease %x", id)
			ttl := int64(eventTTL.Seconds()) + sharedFor
			p.holds(lease.GrantedTTL == ttl && len(lease.Keys) == len(keys) && len(keys) <= perLease,
				"the lease %x of %d s has %d keys, %d events have it", id, lease.GrantedTTL, len(lease.Keys), len(keys))
			count += len(keys)
		}
		p.holds(count == n, "%d events are stored", count)
		p.sees("%d leases of %d s, granted in %.1f s", len(leases), int(eventTTL.Seconds())+sharedFor, time.Since(began).Seconds())
	})
	t.part("an event that is written again changes its lease", func(p *part) {
		first := stored(p).Kvs[0]
		p.holds(strings.HasSuffix(string(first.Key), writtenAgain), "the first is %s", first.Key)
		p.awaitEvery(time.Second, eventTTL, "20 s of the first lease are over", func() bool {
			left, err := c.store.client.TimeToLive(p.ctx, clientv3.LeaseID(first.Lease))
			p.must(err, "the lease")
			return left.TTL <= left.GrantedTTL-20
		})
		asked[0] = time.Now()
		got := p.patch(server.admin, path+"/"+writtenAgain, "merge-patch+json", object{"count": 2})
		p.expect(got, 200, "PATCH")
		now := stored(p).Kvs[0]
		p.holds(now.Lease != 0 && now.Lease != first.Lease, "the lease was %x and is %x", first.Lease, now.Lease)
		p.sees("from %x to %x", first.Lease, now.Lease)
	})
	t.part("all vanish, never early, and watchers see each go once", func(p *part) {
		for left := n; left > 0; time.Sleep(time.Second) {
			first, second := watches[0].gone(p), watches[1].gone(p)
			left = n - min(first, second)
			p.holds(left == 0 || time.Since(asked[0]) < goneBy, "of %d events, %d and %d are seen to go by %v, %d are in the store",
				n, first, second, goneBy, len(stored(p).Kvs))
		}
		deleted := p.deletions(c.store, prefix, begin, n)
		var shortest, longest time.Duration
		for _, g := range watches {
			g.Lock()
			p.holds(g.err == nil && len(g.byName) == n, "a watch showed %d names: %v", len(g.byName), g.err)
			for i, when := range asked {
				name := fmt.Sprintf("event-%04d", i)
				s, want := g.byName[name], "ADDED DELETED"
				if name == writtenAgain {
					want = "ADDED MODIFIED DELETED"
				}
				p.holds(strings.Join(s.kinds, " ") == want, "%s: %v", name, s.kinds)
				p.holds(s.revision == deleted[name], "%s: DELETED at %d, in the store at %d", name, s.revision, deleted[name])
				lived := s.when.Sub(when)
				p.holds(lived >= eventTTL && lived <= goneBy, "%s lived for %v", name, lived)
				if shortest == 0 || lived < shortest {
					shortest = lived
				}
				longest = max(longest, lived)
			}
			g.Unlock()
		}
		p.holds(len(p.get(server.admin, path).items()) == 0 && len(stored(p).Kvs) == 0, "there still are events")
		for id := range leases {
			left, err := c.store.client.TimeToLive(p.ctx, clientv3.LeaseID(id))
			p.must(err, "the lease %x", id)
			p.holds(left.TTL == -1, "the lease %x has %d s left", id, left.TTL)
		}
		p.sees("%d events lived from %.1f to %.1f s, all seen by two watches at the store's revisions",
			n, shortest.Seconds(), longest.Seconds())
	})
}

// happened is an event about a Pod.
func happened(namespace, name string) object {
	return object{
		"metadata":       object{"name": name},
		"involvedObject": object{"kind": "Pod", "namespace": namespace, "name": "pod"},
		"reason":         "Happened", "message": "something happened", "type": "Normal", "count": 1,
	}
}

// deletions reads from the store's own watch at which revisions n keys below a prefix were deleted.
func (p *part) deletions(s *store, prefix string, after int64, n int) map[string]int64 {
	deleted := map[string]int64{}
	watch := s.client.Watch(p.ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithFilterPut())
	for answer := range watch {
		p.must(answer.Err(), "the store's watch")
		for _, e := range answer.Events {
			deleted[strings.TrimPrefix(string(e.Kv.Key), prefix)] = e.Kv.ModRevision
		}
		if len(deleted) >= n {
			return deleted
		}
	}
	p.holds(false, "the store's watch ended")
	return nil
}
