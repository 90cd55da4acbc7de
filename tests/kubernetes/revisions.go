// Check 1: the resourceVersion of objects and lists is the revision of the store.
package main

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// configMaps is where the ConfigMaps of the check are.
func (t *test) configMaps() string { return "/api/v1/namespaces/" + t.namespace + "/configmaps" }

// stored gives what the store has under a ConfigMap's key, and the store's revision; nothing is nil.
func (p *part) stored(name string) (*mvccpb.KeyValue, int64) {
	got, err := p.t.world.shared.store.client.Get(p.ctx, "/registry/configmaps/"+p.t.namespace+"/"+name)
	p.must(err, "the store's %s", name)
	if len(got.Kvs) == 0 {
		return nil, got.Header.Revision
	}
	return got.Kvs[0], got.Header.Revision
}

// agrees ends the part unless the store has the object as the apiserver showed it, with these two numbers.
func (p *part) agrees(o object, created, version int64) {
	kv, _ := p.stored(o.name())
	p.holds(kv != nil, "the store has no %s", o.name())
	p.holds(kv.ModRevision == o.revision() && kv.CreateRevision == created && kv.Version == version,
		"resourceVersion %d, want created at %d and version %d; stored: modified at %d, created at %d, version %d",
		o.revision(), created, version, kv.ModRevision, kv.CreateRevision, kv.Version)
}

func revisions(t *test) {
	cached, uncached := t.both()
	maps := t.configMaps()
	for _, server := range []*apiserver{cached, uncached} {
		name := "of-" + server.name
		t.part("resourceVersion is mod_revision, "+server.name, func(p *part) {
			o := p.create(server.admin, maps, configMap(name, object{"a": "1"}))
			first := o.revision()
			p.agrees(o, first, 1)
			for i := range 5 {
				o = p.put(server.admin, maps+"/"+name, o.set(fmt.Sprint(i), "data", "a"))
				p.agrees(o, first, int64(i+2))
			}
			p.agrees(p.get(server.admin, maps+"/"+name), first, 6)
			p.sees("created at %d, modified at %d, version 6", first, o.revision())
		})
		t.part("an object that is created anew begins anew, "+server.name, func(p *part) {
			before := p.get(server.admin, maps+"/"+name)
			p.expect(p.send(server.admin, "DELETE", maps+"/"+name, nil), 200, "DELETE")
			kv, _ := p.stored(name)
			p.holds(kv == nil, "the store still has it")
			o := p.create(server.admin, maps, configMap(name, nil))
			p.holds(o.revision() > before.revision()+1, "created at %d, deleted after %d", o.revision(), before.revision())
			p.agrees(o, o.revision(), 1)
			p.sees("created at %d after %d", o.revision(), before.revision())
		})
		t.part("a list's resourceVersion is the store's revision, "+server.name, func(p *part) {
			// Apiservers write for themselves now and then, so the store may move between two questions.
			for range 100 {
				_, before := p.stored("none")
				list := p.get(server.admin, maps)
				_, after := p.stored("none")
				p.holds(before <= list.revision() && list.revision() <= after,
					"%d is not between %d and %d", list.revision(), before, after)
				if before == after {
					p.sees("%d", list.revision())
					return
				}
			}
			p.holds(false, "the store did not rest in 100 lists")
		})
	}
}
