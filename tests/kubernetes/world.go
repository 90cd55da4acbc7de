// What the checks share: one store with two apiservers, one of which reads through its cache and one past it.
package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"sternpost/tests/etcd/servers"
)

// world makes clusters. All that it made ends with it.
type world struct {
	kind     servers.Kind
	dir      string
	pki      *pki
	shared   *cluster
	clusters []*cluster
}

// cluster is a store and the apiservers on it.
type cluster struct {
	world   *world
	dir     string
	env     []string
	store   *store
	servers []*apiserver
}

// options are what a cluster is made with.
type options struct {
	link  link         // between store and apiservers
	flags []string     // of the store
	env   []string     // of the apiservers, beside the judge's
	kind  servers.Kind // of the store; empty is the world's
}

// cluster starts a store; apiservers come by serve.
func (w *world) cluster(ctx context.Context, o options) (*cluster, error) {
	c := &cluster{world: w, env: o.env, dir: filepath.Join(w.dir, fmt.Sprintf("cluster-%d", len(w.clusters)+1))}
	w.clusters = append(w.clusters, c)
	var err error
	c.store, err = startStore(ctx, cmp.Or(o.kind, w.kind), c.dir, w.pki, o)
	return c, err
}

// serve starts one more apiserver on the store, and returns once it is ready.
func (c *cluster) serve(ctx context.Context, name string, flags ...string) (*apiserver, error) {
	s, err := newApiserver(c, name, flags)
	if err != nil {
		return nil, err
	}
	c.servers = append(c.servers, s)
	return s, s.run(ctx)
}

// end stops everything of the cluster, at once.
func (c *cluster) end() {
	for _, s := range c.servers {
		s.kill()
	}
	if c.store != nil {
		c.store.end()
	}
}

func (w *world) end() {
	for _, c := range w.clusters {
		c.end()
	}
}

// showLogs prints the end of each log.
func (w *world) showLogs() {
	for _, c := range w.clusters {
		if c.store != nil {
			fmt.Printf("--- the end of %s\n%s\n", c.store.server.LogPath, c.store.server.LogTail())
		}
		for _, s := range c.servers {
			fmt.Printf("--- the end of %s\n%s\n", s.logPath, tail(s.logPath))
		}
	}
}

// rarely keeps an apiserver from compacting, but not from listening to what is compacted, as no interval at all would.
const rarely = "--etcd-compaction-interval=12h"

// both gives the shared apiservers: one with its watch cache, one without. The first to ask starts them. Checks compact.
func (t *test) both() (cached, uncached *apiserver) {
	t.part("apiservers of the check are ready", func(p *part) {
		w := t.world
		if w.shared == nil {
			c, err := w.cluster(p.ctx, options{})
			p.must(err, "the store")
			_, err = c.serve(p.ctx, "cached", rarely)
			p.must(err, "with a watch cache")
			_, err = c.serve(p.ctx, "uncached", rarely, "--watch-cache=false")
			p.must(err, "without a watch cache")
			w.shared = c
		}
		cached, uncached = w.shared.servers[0], w.shared.servers[1]
		p.create(cached.admin, "/api/v1/namespaces", object{"metadata": object{"name": t.namespace}})
		p.sees("%s", cached.version)
	})
	if t.failed > 0 {
		panic(errEnd)
	}
	return cached, uncached
}
