// Check 2: who writes on the base of what he has not seen last is refused, and nothing is lost.
package main

import (
	"fmt"
	"reflect"
	"strconv"
	"sync/atomic"
)

const modified = "the object has been modified; please apply your changes to the latest version and try again"

func conflicts(t *test) {
	cached, uncached := t.both()
	maps := t.configMaps()
	t.part("a stale resourceVersion is refused", func(p *part) {
		stale := p.create(cached.admin, maps, configMap("stale", object{"a": "1"}))
		now := p.put(cached.admin, maps+"/stale", stale.copied().set("2", "data", "a"))
		for _, server := range []*apiserver{cached, uncached} {
			got := p.send(server.admin, "PUT", maps+"/stale", stale.copied().set("3", "data", "a"))
			want := `Operation cannot be fulfilled on configmaps "stale": ` + modified
			p.holds(got.is(409, "Conflict") && got.body.text("message") == want, "%s: got %v", server.name, got)
			after := p.get(server.admin, maps+"/stale")
			p.holds(reflect.DeepEqual(after, now), "%s: it has become %v", server.name, after)
			p.agrees(after, stale.revision(), 2)
		}
		p.sees("409 Conflict, still at %d", now.revision())
	})
	t.part("a PUT with another object's uid is refused", func(p *part) {
		o := p.create(cached.admin, maps, configMap("uid", nil))
		got := p.send(cached.admin, "PUT", maps+"/uid", o.copied().set("another", "metadata", "uid"))
		p.holds(got.is(409, "Conflict"), "got %v", got)
		p.agrees(p.get(cached.admin, maps+"/uid"), o.revision(), 1)
		p.sees("409 Conflict")
	})
	t.part("50 writers that retry count exactly", func(p *part) {
		const writers, rounds = 50, 6
		created := p.create(cached.admin, maps, configMap("counter", object{"count": "0"}))
		var refused atomic.Int64
		err := each(writers, func(i int) error {
			client := []*api{cached.admin, uncached.admin}[i%2]
			for range rounds {
				conflicts, err := increment(p, client, maps+"/counter")
				refused.Add(conflicts)
				if err != nil {
					return err
				}
			}
			return nil
		})
		p.must(err, "a writer")
		o := p.get(cached.admin, maps+"/counter")
		p.holds(o.text("data", "count") == strconv.Itoa(writers*rounds), "the counter is at %s", o.text("data", "count"))
		p.agrees(o, created.revision(), writers*rounds+1)
		p.holds(refused.Load() > 0, "no writer met another")
		p.sees("%d writers, %s increments, %d conflicts", writers, o.text("data", "count"), refused.Load())
	})
}

// increment adds 1 to a counter, trying until it succeeds, and counts the conflicts.
func increment(p *part, client *api, path string) (conflicts int64, err error) {
	for {
		got, err := client.send(p.ctx, "GET", path, nil)
		if err != nil || got.code != 200 {
			return conflicts, fmt.Errorf("%v: %v", err, got)
		}
		count, err := strconv.Atoi(got.body.text("data", "count"))
		if err != nil {
			return conflicts, err
		}
		got, err = client.send(p.ctx, "PUT", path, got.body.set(strconv.Itoa(count+1), "data", "count"))
		switch {
		case err != nil:
			return conflicts, err
		case got.is(409, "Conflict"):
			conflicts++
		case got.code != 200:
			return conflicts, fmt.Errorf("%v", got)
		default:
			return conflicts, nil
		}
	}
}
