// Clusters that a check has to itself.
package main

import "fmt"

// alone starts a store and one apiserver for this check, with a namespace. Without them the check ends.
func (t *test) alone(o options, flags ...string) (c *cluster, s *apiserver) {
	t.part("a store and an apiserver are ready", func(p *part) {
		c, s = p.cluster(o, "apiserver", flags...)
		p.sees("%s on %s", s.version, c.store.server.Kind)
	})
	if t.failed > 0 {
		panic(errEnd)
	}
	return c, s
}

// cluster is alone within a part.
func (p *part) cluster(o options, name string, flags ...string) (*cluster, *apiserver) {
	c, err := p.t.world.cluster(p.ctx, o)
	p.must(err, "the store")
	s, err := c.serve(p.ctx, name, flags...)
	p.must(err, "the apiserver")
	p.create(s.admin, "/api/v1/namespaces", object{"metadata": object{"name": p.t.namespace}})
	return c, s
}

// in is the path of a resource of the core group in the namespace of the check.
func (t *test) in(resource string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/%s", t.namespace, resource)
}
