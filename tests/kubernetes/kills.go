// Check 13: the store is killed under load, again and again, and started on its data.
package main

import (
	"fmt"
	"maps"
	"time"
)

// killed is how often; between two kills so many writes are acknowledged, and a random time passes.
const (
	killed       = 20
	betweenKills = 200
	mostPause    = 300 * time.Millisecond
)

func kills(t *test) {
	c, server := t.alone(options{})
	n, path := t.scaled(killed), t.configMaps()
	t.part(fmt.Sprintf("killed %d times, nothing is lost", n), func(p *part) {
		pid := server.cmd.Process.Pid
		f, ended := p.follow(server.admin, path, lastName)
		writes := p.load(path, 8, 50, 0, server.admin)
		var down, longest time.Duration
		for range n {
			writes.goesOn(p, betweenKills)
			time.Sleep(time.Duration(t.random.Int64N(int64(mostPause))))
			acked, began := writes.acked.Load(), time.Now()
			p.must(c.store.restart(p.ctx), "a restart of the store")
			now, err := c.store.revision(p.ctx)
			p.must(err, "the store's revision")
			p.holds(now >= acked, "the store is at %d, and had acknowledged %d", now, acked)
			took := time.Since(began)
			down, longest = down+took, max(longest, took)
			p.holds(server.alive(), "the apiserver has ended")
		}
		writes.goesOn(p, betweenKills)
		want := writes.end(p)
		o := p.create(server.admin, path, valued(lastName, ""))
		want[lastName] = versionOf(o)
		p.holds(o.revision() > writes.acked.Load(), "the last write is at %d, after %d", o.revision(), writes.acked.Load())
		list, revision := p.listed(server.admin, path)
		p.holds(maps.Equal(list, want) && revision >= o.revision(),
			"%d objects at %d, want %d at %d", len(list), revision, len(want), o.revision())
		p.await(time.Minute, "the cache has all", func() bool {
			list, _ := p.listed(server.admin, path, "resourceVersion", "0")
			return maps.Equal(list, want)
		})
		p.must(<-ended, "the watch")
		p.holds(maps.Equal(f.state, want), "the watch ends with %d objects, want %d", len(f.state), len(want))
		p.holds(server.alive() && server.cmd.Process.Pid == pid, "the apiserver has ended")
		p.sees("%d writes acknowledged, %d of unknown outcome; down for %.1f s, at most %.2f s; the watch: %d events, "+
			"resumed %d times, begun anew %d", writes.acks.Load(), writes.unknown.Load(), down.Seconds(), longest.Seconds(),
			f.events, f.resumed, f.relisted)
	})
}
