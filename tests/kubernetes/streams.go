// Check 17: from 1.37 on an apiserver has lists streamed, and does without where it may not.
package main

import (
	"fmt"
	"maps"
	"os"
	"strings"
)

const streamedObjects = 2000

func streams(t *test) {
	c, server := t.alone(options{})
	knows := !strings.HasPrefix(os.Getenv("KUBERNETES_VERSION"), "v1.34")
	path := t.configMaps()
	want := map[string]version{}
	count := func(p *part) int64 { return p.called(c.store, "RangeStream") }
	ask := func(p *part, s *apiserver) (streamed int64) {
		before := count(p)
		list, _ := p.listed(s.admin, path)
		p.holds(maps.Equal(list, want), "%s lists %d objects, want %d", s.name, len(list), len(want))
		return count(p) - before
	}
	t.part("caches are filled by streams", func(p *part) {
		p.must(fill(p, server.admin, path, "streamed", streamedObjects, 1), "objects")
		want, _ = p.listed(server.admin, path)
		p.holds(len(want) == streamedObjects, "%d objects", len(want))
		server.kill()
		before := count(p)
		p.must(server.run(p.ctx), "the apiserver again")
		list, _ := p.listed(server.admin, path, "resourceVersion", "0")
		p.holds(maps.Equal(list, want), "the cache has %d objects, want %d", len(list), len(want))
		after := count(p)
		p.holds((after > before) == knows, "%d calls before, %d after", before, after)
		p.sees("%d calls of RangeStream for one start of %s", after-before, server.version)
	})
	t.part("lists past a cache are streamed", func(p *part) {
		past, err := c.serve(p.ctx, "uncached", "--watch-cache=false")
		p.must(err, "without a watch cache")
		streamed := ask(p, past)
		p.holds((streamed > 0) == knows, "%d calls", streamed)
		past.kill()
		p.sees("%d calls for a list of %d objects", streamed, len(want))
	})
	if !knows {
		return
	}
	t.part("switched off, lists come in pages", func(p *part) {
		server.kill()
		before := count(p)
		for i, flags := range [][]string{nil, {"--watch-cache=false"}} {
			s, err := c.serve(p.ctx, fmt.Sprintf("paged-%d", i), append(flags, "--feature-gates=EtcdRangeStream=false")...)
			p.must(err, "without streams")
			list, _ := p.listed(s.admin, path, "resourceVersion", "0")
			p.holds(maps.Equal(list, want), "%s lists %d objects, want %d", s.name, len(list), len(want))
			p.holds(ask(p, s) == 0, "%s has lists streamed", s.name)
			s.kill()
		}
		p.holds(count(p) == before, "%d calls of RangeStream", count(p)-before)
		p.sees("no call of RangeStream, the same %d objects", len(want))
	})
}
