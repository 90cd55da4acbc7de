// Check 3: creating what is there, and deleting what has changed.
package main

import (
	"reflect"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func creation(t *test) {
	cached, uncached := t.both()
	maps := t.configMaps()
	for _, server := range []*apiserver{cached, uncached} {
		t.part("what exists is not created again, "+server.name, func(p *part) {
			name := "twice-" + server.name
			o := p.create(server.admin, maps, configMap(name, object{"a": "1"}))
			// Apiservers write for themselves now and then, so the store may move for other reasons.
			for range 100 {
				_, before := p.stored(name)
				got := p.send(server.admin, "POST", maps, configMap(name, object{"a": "2"}))
				want := `configmaps "` + name + `" already exists`
				p.holds(got.is(409, "AlreadyExists") && got.body.text("message") == want, "got %v", got)
				p.agrees(p.get(server.admin, maps+"/"+name), o.revision(), 1)
				if _, after := p.stored(name); after == before {
					p.sees("409 AlreadyExists, the store still at %d", after)
					return
				}
			}
			p.holds(false, "the store moved with each of 100 refusals")
		})
		t.part("a deletion under a stale condition is refused, "+server.name, func(p *part) {
			name := "guarded-" + server.name
			old := p.create(server.admin, maps, configMap(name, nil))
			now := p.put(server.admin, maps+"/"+name, old.copied().set("2", "data", "a"))
			for _, guard := range []object{
				{"resourceVersion": strconv.FormatInt(old.revision(), 10)}, {"uid": "another"},
			} {
				got := p.send(server.admin, "DELETE", maps+"/"+name, object{"preconditions": guard})
				p.holds(got.is(409, "Conflict"), "%v: got %v", guard, got)
				p.agrees(p.get(server.admin, maps+"/"+name), old.revision(), 2)
			}
			p.sees("409 Conflict, still at %d", now.revision())
		})
		t.part("a deletion's event has its revision and the last state, "+server.name, func(p *part) {
			name := "deleted-" + server.name
			o := p.create(server.admin, maps, configMap(name, object{"a": "last"}))
			from := strconv.FormatInt(o.revision(), 10)
			watches := []*watcher{
				p.watching(cached.admin, maps, "resourceVersion", from, "fieldSelector", "metadata.name="+name),
				p.watching(uncached.admin, maps, "resourceVersion", from, "fieldSelector", "metadata.name="+name),
			}
			guard := object{"resourceVersion": from, "uid": o.text("metadata", "uid")}
			p.expect(p.send(server.admin, "DELETE", maps+"/"+name, object{"preconditions": guard}), 200, "DELETE")
			revision := p.deletedAt(name, o.revision())
			want := o.copied().set(strconv.FormatInt(revision, 10), "metadata", "resourceVersion")
			for _, w := range watches {
				e := p.next(w)
				w.close()
				e.Object.drop("kind", "apiVersion")
				want.drop("kind", "apiVersion")
				p.holds(e.Type == "DELETED" && reflect.DeepEqual(e.Object, want), "deleted at %d: got %v, want %v", revision, e, want)
			}
			p.expect(p.send(server.admin, "GET", maps+"/"+name, nil), 404, "GET")
			p.expect(p.send(server.admin, "DELETE", maps+"/"+name, nil), 404, "DELETE again")
			p.sees("created at %d, deleted at %d", o.revision(), revision)
		})
	}
}

// deletedAt asks the store for the revision at which a ConfigMap was deleted after this revision.
func (p *part) deletedAt(name string, after int64) int64 {
	key := "/registry/configmaps/" + p.t.namespace + "/" + name
	watch := p.t.world.shared.store.client.Watch(p.ctx, key, clientv3.WithRev(after+1))
	for answer := range watch {
		p.must(answer.Err(), "the store's watch")
		for _, e := range answer.Events {
			if e.Type == clientv3.EventTypeDelete {
				return e.Kv.ModRevision
			}
		}
	}
	p.holds(false, "the store has not deleted %s", key)
	return 0
}
