// Check 4: the kinds of patches, and who owns what.
package main

import (
	"fmt"
	"reflect"
	"strings"
)

func patches(t *test) {
	cached, uncached := t.both()
	maps := t.configMaps()
	data := func(o object) object { return o.inner("data") }
	t.part("JSON merge patch", func(p *part) {
		p.create(cached.admin, maps, configMap("merge", object{"a": "1", "b": "2"}))
		patch := object{"data": object{"a": nil, "b": "3", "c": "4"}}
		o := p.expect(p.patch(cached.admin, maps+"/merge", "merge-patch+json", patch), 200, "the patch")
		p.holds(reflect.DeepEqual(data(o), object{"b": "3", "c": "4"}), "got %v", data(o))
		stale := object{"metadata": object{"resourceVersion": "1"}, "data": object{"b": "5"}}
		got := p.patch(cached.admin, maps+"/merge", "merge-patch+json", stale)
		p.holds(got.is(409, "Conflict"), "with a stale resourceVersion: %v", got)
		p.holds(reflect.DeepEqual(p.get(uncached.admin, maps+"/merge"), o), "it has changed")
		p.sees("%v; with a stale resourceVersion 409", data(o))
	})
	t.part("JSON patch with a test", func(p *part) {
		p.create(cached.admin, maps, configMap("json", object{"a": "1", "b": "2"}))
		patch := []object{
			{"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/b", "value": "3"},
			{"op": "move", "from": "/data/a", "path": "/data/c"},
		}
		o := p.expect(p.patch(cached.admin, maps+"/json", "json-patch+json", patch), 200, "the patch")
		p.holds(reflect.DeepEqual(data(o), object{"b": "3", "c": "1"}), "got %v", data(o))
		got := p.patch(uncached.admin, maps+"/json", "json-patch+json", patch)
		p.holds(got.code == 422, "the test fails: got %v", got)
		p.holds(reflect.DeepEqual(p.get(uncached.admin, maps+"/json"), o), "it has changed")
		p.sees("%v; a failing test %v", data(o), got)
	})
	t.part("strategic merge patch", func(p *part) {
		deployments := "/apis/apps/v1/namespaces/" + t.namespace + "/deployments"
		p.create(cached.admin, deployments, deployment("strategic", "one", "two"))
		patch := object{"spec": object{"template": object{"spec": object{"containers": []object{
			{"name": "two", "image": "example.invalid/new"}, {"name": "three", "image": "example.invalid/three"},
			{"name": "one", "$patch": "delete"},
		}}}}}
		o := p.expect(p.patch(cached.admin, deployments+"/strategic", "strategic-merge-patch+json", patch), 200, "the patch")
		images := map[string]string{}
		containers, _ := o.at("spec", "template", "spec", "containers").([]any)
		for _, c := range containers {
			container := object(c.(map[string]any))
			images[container.text("name")] = container.text("image")
		}
		want := map[string]string{"two": "example.invalid/new", "three": "example.invalid/three"}
		p.holds(reflect.DeepEqual(images, want), "got %v", images)
		p.sees("%v", images)
	})
	t.part("patches of 20 at the same time all arrive", func(p *part) {
		const writers, rounds = 20, 5
		o := p.create(cached.admin, maps, configMap("crowd", nil))
		err := each(writers, func(i int) error {
			server := []*apiserver{cached, uncached}[i%2]
			for round := range rounds {
				patch := object{"data": object{fmt.Sprintf("w%d", i): fmt.Sprint(round)}}
				// The apiserver itself tries five times.
				for done := false; !done; {
					got, err := server.admin.sendAs(p.ctx, "PATCH", maps+"/crowd", patch, "application/merge-patch+json")
					if err != nil || (got.code != 200 && !got.is(409, "Conflict")) {
						return fmt.Errorf("%v: %v", err, got)
					}
					done = got.code == 200
				}
			}
			return nil
		})
		p.must(err, "a writer")
		after := p.get(cached.admin, maps+"/crowd")
		for i := range writers {
			p.holds(after.text("data", fmt.Sprintf("w%d", i)) == fmt.Sprint(rounds-1), "lost: %v", data(after))
		}
		p.agrees(after, o.revision(), writers*rounds+1)
		p.sees("%d keys, %d patches", len(data(after)), writers*rounds)
	})
	applied(t, cached, uncached)
}

// applied is server-side apply.
func applied(t *test, cached, uncached *apiserver) {
	path := t.configMaps() + "/applied"
	intent := func(data object) object {
		return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "applied"}, "data": data}
	}
	apply := func(p *part, server *apiserver, manager, more string, data object) *answer {
		return p.patch(server.admin, path+"?fieldManager="+manager+more, "apply-patch+yaml", intent(data))
	}
	t.part("server-side apply creates, and again does nothing", func(p *part) {
		o := p.expect(apply(p, cached, "one", "", object{"a": "1", "b": "1"}), 201, "the first")
		for _, server := range []*apiserver{cached, uncached} {
			again := p.expect(apply(p, server, "one", "", object{"a": "1", "b": "1"}), 200, "again")
			p.holds(reflect.DeepEqual(again, o), "it has become %v", again)
			p.agrees(again, o.revision(), 1)
		}
		p.sees("created at %d, which it stays at", o.revision())
	})
	t.part("a second manager is refused, by field", func(p *part) {
		before := p.get(cached.admin, path)
		got := apply(p, uncached, "two", "", object{"a": "2", "c": "2"})
		p.holds(got.is(409, "Conflict"), "got %v", got)
		causes, _ := got.body.at("details", "causes").([]any)
		p.holds(len(causes) == 1, "%d causes: %s", len(causes), got.raw)
		cause := object(causes[0].(map[string]any))
		p.holds(cause.text("field") == ".data.a" && cause.text("reason") == "FieldManagerConflict" &&
			strings.Contains(cause.text("message"), `"one"`), "the cause is %v", cause)
		p.holds(reflect.DeepEqual(p.get(uncached.admin, path), before), "it has changed")
		p.sees("409 for .data.a, %s", cause.text("message"))
	})
	t.part("with force it takes over", func(p *part) {
		created, _ := p.stored("applied")
		o := p.expect(apply(p, uncached, "two", "&force=true", object{"a": "2", "c": "2"}), 200, "with force")
		want := object{"a": "2", "b": "1", "c": "2"}
		p.holds(reflect.DeepEqual(o.inner("data"), want), "got %v", o.inner("data"))
		p.agrees(o, created.CreateRevision, 2)
		// Now the first one owns b alone, and what it no longer names goes.
		o = p.expect(apply(p, cached, "one", "", object{}), 200, "without any field")
		p.holds(reflect.DeepEqual(o.inner("data"), object{"a": "2", "c": "2"}), "got %v", o.inner("data"))
		p.agrees(o, created.CreateRevision, 3)
		p.sees("%v, then %v", want, o.inner("data"))
	})
}

// deployment is one with these containers and no replicas.
func deployment(name string, containers ...string) object {
	var list []object
	for _, container := range containers {
		list = append(list, object{"name": container, "image": "example.invalid/" + container})
	}
	return object{
		"metadata": object{"name": name},
		"spec": object{
			"replicas": 1,
			"selector": object{"matchLabels": object{"app": name}},
			"template": object{"metadata": object{"labels": object{"app": name}}, "spec": object{"containers": list}},
		},
	}
}
