// Check 16: an apiserver starts on a store that is full, and lists all of it; beside an etcd, in the same run.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"sternpost/tests/etcd/servers"
)

const (
	filledObjects = 20_000
	filledBytes   = 10 * kib
	filledRounds  = 3
)

// filled is a full store, and the least that each step on it took.
type filled struct {
	kind           servers.Kind
	name           string
	c              *cluster
	server, past   *apiserver
	ready          time.Duration // from the start of an apiserver to a first list of all, from its cache
	cached, beyond time.Duration
}

func fills(t *test) {
	n := t.scaled(filledObjects)
	// On etcd the ratio is of two that are the same: how far to trust it.
	sides := []*filled{{kind: t.world.kind, name: "the store"}, {kind: servers.Etcd, name: "the etcd beside it"}}
	for _, f := range sides {
		t.part(fmt.Sprintf("%d objects of 10 KiB are written, %s", n, f.name), func(p *part) {
			f.fill(p, n)
			p.sees("%s, %v", f.kind, p.uses(f.c.store))
		})
	}
	if t.failed > 0 {
		return
	}
	t.part("an apiserver starts, and lists from its cache and past it", func(p *part) {
		// By turns, and the least of each: what else the machine does is in none of them, or in all.
		for range filledRounds {
			for _, f := range sides {
				f.round(p, n)
			}
		}
		ours, theirs := sides[0], sides[1]
		p.sees("start and first list %s, list from the cache %s, list past it %s", beside(ours.ready, theirs.ready),
			beside(ours.cached, theirs.cached), beside(ours.beyond, theirs.beyond))
	})
}

// beside shows two times and the ratio.
func beside(ours, theirs time.Duration) string {
	return fmt.Sprintf("%.2f s (etcd %.2f s, ratio %.2f)", ours.Seconds(), theirs.Seconds(), ours.Seconds()/theirs.Seconds())
}

func filledContent(i int) string { return strings.Repeat(fmt.Sprintf("%08d", i), filledBytes/8) }

// fill starts a store and an apiserver, writes the objects, and ends the apiserver.
func (f *filled) fill(p *part, n int) {
	f.c, f.server = p.cluster(options{kind: f.kind}, "apiserver", "--etcd-compaction-interval=0")
	const writers = 8
	p.must(each(writers, func(w int) error {
		for i := w; i < n; i += writers {
			o := configMap(fmt.Sprintf("filled-%05d", i), object{"content": filledContent(i)})
			got, err := f.server.admin.send(p.ctx, "POST", p.t.configMaps(), o)
			if err != nil || got.code != http.StatusCreated {
				return fmt.Errorf("%v: %v", err, got)
			}
		}
		return nil
	}), "filling")
	f.server.kill()
}

// round starts the apiserver anew and lists, then one without a cache.
func (f *filled) round(p *part, n int) {
	began := time.Now()
	p.must(f.server.run(p.ctx), "the apiserver again")
	p.whole(f.server.admin, n, "resourceVersion", "0")
	least(&f.ready, time.Since(began))
	least(&f.cached, p.whole(f.server.admin, n))
	f.server.kill()
	var err error
	if f.past == nil {
		f.past, err = f.c.serve(p.ctx, "uncached", "--etcd-compaction-interval=0", "--watch-cache=false")
	} else {
		err = f.past.run(p.ctx)
	}
	p.must(err, "without a watch cache")
	least(&f.beyond, p.whole(f.past.admin, n))
	f.past.kill()
}

func least(now *time.Duration, took time.Duration) {
	if *now == 0 || took < *now {
		*now = took
	}
}

// whole lists, in the form that is the cheapest to make; the time is that until all of it is there. It has to be everything.
func (p *part) whole(a *api, n int, parameters ...string) time.Duration {
	request, err := http.NewRequestWithContext(p.ctx, "GET", a.base+query(p.t.configMaps(), parameters...), nil)
	p.must(err, "a list")
	request.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	began := time.Now()
	response, err := a.client.Do(request)
	p.must(err, "a list")
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	took := time.Since(began)
	p.must(err, "a list")
	p.holds(response.StatusCode == http.StatusOK, "a list: %s", response.Status)
	rest := raw
	for i := range n {
		for _, text := range []string{fmt.Sprintf("filled-%05d", i), filledContent(i)} {
			at := bytes.Index(rest, []byte(text))
			p.holds(at >= 0, "object %d of %d is missing, out of order or has other contents", i, n)
			rest = rest[at+len(text):]
		}
	}
	p.holds(bytes.Count(raw, []byte("filled-")) == n, "there are more than %d objects", n)
	return took
}
