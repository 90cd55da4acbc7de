// Check 16: an apiserver starts on a store that is full, and lists all of it; beside an etcd, in the same run.
package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sternpost/tests/etcd/servers"
)

const (
	filledObjects = 20_000
	filledBytes   = 10 * kib
	filledLists   = 5
)

// timed is how long each step took; lists are means.
type timed struct {
	ready, first, cached, past time.Duration
}

func fills(t *test) {
	n := t.scaled(filledObjects)
	steps := map[string]timed{}
	// On etcd the ratio is of two that are the same: how far to trust it.
	for _, side := range []struct {
		name string
		kind servers.Kind
	}{{"the store", t.world.kind}, {"the etcd beside it", servers.Etcd}} {
		t.part(fmt.Sprintf("%d objects of 10 KiB, %s", n, side.name), func(p *part) {
			took := fillAndStart(p, options{kind: side.kind}, n)
			steps[side.name] = took
			p.sees("%s: ready after %.1f s, first list %.1f s later; a consistent list takes %.2f s from the cache, %.2f s past it",
				side.kind, took.ready.Seconds(), took.first.Seconds(), took.cached.Seconds(), took.past.Seconds())
		})
	}
	ours, theirs := steps["the store"], steps["the etcd beside it"]
	if t.failed == 0 {
		t.part("times of the store over those of the etcd", func(p *part) {
			ratio := func(of func(timed) time.Duration) float64 { return of(ours).Seconds() / of(theirs).Seconds() }
			p.sees("start and first list %.2f, list from the cache %.2f, list past it %.2f",
				ratio(func(s timed) time.Duration { return s.ready + s.first }),
				ratio(func(s timed) time.Duration { return s.cached }), ratio(func(s timed) time.Duration { return s.past }))
		})
	}
}

// fillAndStart fills a store, starts an apiserver anew on it, and lists; all of it has to be there each time.
func fillAndStart(p *part, o options, n int) (took timed) {
	c, server := p.cluster(o, "apiserver", "--etcd-compaction-interval=0")
	defer c.end()
	path := p.t.configMaps()
	content := func(i int) string { return strings.Repeat(fmt.Sprintf("%08d", i), filledBytes/8) }
	const writers = 8
	p.must(each(writers, func(w int) error {
		for i := w; i < n; i += writers {
			o := configMap(fmt.Sprintf("filled-%05d", i), object{"content": content(i)})
			if got, err := server.admin.send(p.ctx, "POST", path, o); err != nil || got.code != http.StatusCreated {
				return fmt.Errorf("%v: %v", err, got)
			}
		}
		return nil
	}), "filling")
	want := sha256.New()
	for i := range n {
		want.Write([]byte(content(i)))
	}
	whole := func(list object) {
		sum, items := sha256.New(), list.items()
		for i, o := range items {
			p.holds(o.name() == fmt.Sprintf("filled-%05d", i), "object %d is %s", i, o.name())
			sum.Write([]byte(o.text("data", "content")))
		}
		p.holds(len(items) == n && string(sum.Sum(nil)) == string(want.Sum(nil)), "%d objects, want %d, or other contents", len(items), n)
	}
	// list gives the mean time of the answer; what is in it is looked at once it is there.
	list := func(s *apiserver, times int, parameters ...string) (mean time.Duration) {
		for range times {
			began := time.Now()
			response, err := s.admin.request(p.ctx, "GET", query(path, parameters...), nil, "")
			p.must(err, "a list")
			got, err := read(response)
			p.must(err, "a list")
			mean += time.Since(began)
			whole(p.expect(got, http.StatusOK, "a list"))
		}
		return mean / time.Duration(times)
	}
	server.kill()
	began := time.Now()
	p.must(server.run(p.ctx), "the apiserver again")
	took.ready = time.Since(began)
	took.first = list(server, 1, "resourceVersion", "0")
	took.cached = list(server, filledLists)
	server.kill()
	past, err := c.serve(p.ctx, "uncached", "--etcd-compaction-interval=0", "--watch-cache=false")
	p.must(err, "without a watch cache")
	took.past = list(past, filledLists)
	return took
}
