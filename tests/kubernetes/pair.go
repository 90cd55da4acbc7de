// Check 12: two apiservers on one store agree, and compact it once an interval between them.
package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	compactionInterval = 10 * time.Second
	intervals          = 6
	agreedBy           = 30 * time.Second
)

// compactions are the writes to the key by which apiservers agree who compacts.
type compactions struct {
	sync.Mutex
	versions []int64
	values   []int64
	err      error
}

func (c *compactions) run(ctx context.Context, s *store) {
	for answer := range s.client.Watch(ctx, "compact_rev_key", clientv3.WithRev(1)) {
		c.Lock()
		if c.err = answer.Err(); c.err == nil {
			for _, e := range answer.Events {
				value, err := strconv.ParseInt(string(e.Kv.Value), 10, 64)
				c.versions, c.values, c.err = append(c.versions, e.Kv.Version), append(c.values, value), err
			}
		}
		c.Unlock()
	}
}

// so far: how many, and the last value.
func (c *compactions) now(p *part) (count int, last int64) {
	c.Lock()
	defer c.Unlock()
	p.must(c.err, "the watch on compact_rev_key")
	for i, version := range c.versions {
		p.holds(version == int64(i+1), "write %d of compact_rev_key has version %d", i+1, version)
		p.holds(c.values[i] >= last, "compact_rev_key went from %d to %d", last, c.values[i])
		last = c.values[i]
	}
	return len(c.versions), last
}

func pair(t *test) {
	interval := "--etcd-compaction-interval=" + compactionInterval.String()
	c, first := t.alone(options{}, interval)
	noted := &compactions{}
	var second *apiserver
	t.part("a second apiserver is ready", func(p *part) {
		go noted.run(p.ctx, c.store)
		var err error
		second, err = c.serve(p.ctx, "second", interval)
		p.must(err, "the second")
		p.sees("%s", second.version)
	})
	if t.failed > 0 {
		return
	}
	var writes *load
	t.part("one compacts, once an interval", func(p *part) {
		writes = p.load(t.configMaps(), 8, 25, 5*time.Millisecond, first.admin, second.admin)
		p.await(3*compactionInterval, "a compaction", func() bool { _, last := noted.now(p); return last > 0 })
		before, old := noted.now(p)
		select {
		case <-time.After(intervals * compactionInterval):
		case <-p.ctx.Done():
		}
		after, last := noted.now(p)
		p.holds(after-before <= intervals+1 && after-before >= intervals/2 && last > old,
			"%d in %d intervals", after-before, intervals)
		p.eachCompacts(c.store, noted)
		p.sees("%d in %d intervals, from %d to %d", after-before, intervals, old, last)
		for _, s := range c.servers {
			p.awaitEvery(time.Second, time.Minute, s.name+" has forgotten what is compacted", func() bool {
				path := query(t.configMaps(), "resourceVersion", fmt.Sprint(old), "resourceVersionMatch", "Exact")
				got := p.send(s.admin, "GET", path, nil)
				return got.is(410, "Expired")
			})
		}
	})
	t.part("both agree after the last write", func(p *part) {
		followers := make([]*follower, 2)
		ended := make([]chan error, 2)
		for i, s := range c.servers {
			followers[i], ended[i] = p.follow(s.admin, t.configMaps(), lastName)
		}
		writes.goesOn(p, 500)
		want := writes.end(p)
		o := p.create(second.admin, t.configMaps(), valued(lastName, "1"))
		want[lastName] = versionOf(o)
		began := time.Now()
		var took []string
		for _, s := range c.servers {
			// A list that asks for no revision is of the last one, at once; the cache as it is comes after.
			list, _ := p.listed(s.admin, t.configMaps())
			p.holds(maps.Equal(list, want), "%s lists %d objects, want %d", s.name, len(list), len(want))
			p.await(agreedBy, "the cache of "+s.name, func() bool {
				list, _ := p.listed(s.admin, t.configMaps(), "resourceVersion", "0")
				return maps.Equal(list, want)
			})
			took = append(took, fmt.Sprintf("%s after %v", s.name, time.Since(began).Round(time.Millisecond)))
		}
		for i, f := range followers {
			p.must(<-ended[i], "a watch")
			p.holds(maps.Equal(f.state, want) && f.relisted == 0,
				"the watch of %s ends with %d objects, want %d", f.client.name, len(f.state), len(want))
		}
		p.holds(writes.unknown.Load() == 0, "%d writes had an unknown outcome", writes.unknown.Load())
		p.sees("%d objects after %d writes: %v", len(want), writes.acks.Load(), took)
	})
	t.part("the other goes on when one ends", func(p *part) {
		var counts []int
		for i, s := range c.servers {
			s.kill()
			before, _ := noted.now(p)
			p.await(5*compactionInterval, "two compactions without "+s.name, func() bool {
				now, _ := noted.now(p)
				return now >= before+2
			})
			after, _ := noted.now(p)
			counts = append(counts, after-before)
			if i == 0 {
				p.must(s.run(p.ctx), "%s again", s.name)
			}
		}
		p.eachCompacts(c.store, noted)
		p.sees("%v compactions while one was gone", counts)
	})
}

// eachCompacts wants one call of Compact for each value of the key but 0, and the store compacted at the last.
func (p *part) eachCompacts(s *store, noted *compactions) {
	var seen string
	p.await(compactionInterval/2, "one call of Compact for each write to compact_rev_key", func() bool {
		noted.Lock()
		want := int64(0)
		for _, value := range noted.values {
			if value > 0 {
				want++
			}
		}
		noted.Unlock()
		_, last := noted.now(p)
		calls := p.called(s, "Compact")
		at, err := s.metric(p.ctx, "etcd_debugging_mvcc_compact_revision")
		p.must(err, "metrics of the store")
		seen = fmt.Sprintf("%d calls for %d writes, compacted at %v, written %d", calls, want, at, last)
		p.sees("%s", seen)
		return calls == want && int64(at) == last
	})
}
