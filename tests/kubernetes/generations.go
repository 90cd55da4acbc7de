// Check 8: what counts as a new generation, and what status and scale may write.
package main

import (
	"fmt"
	"reflect"
	"time"
)

// kept is a resource with status and scale.
type kept struct {
	name  string // of the resource
	path  string // of all objects
	fresh func(name string) object
	scale string // API group and version of the scale
}

func generations(t *test) {
	cached, uncached := t.both()
	deployments := kept{
		"deployments", "/apis/apps/v1/namespaces/" + t.namespace + "/deployments",
		func(name string) object { return deployment(name, "one") }, "autoscaling/v1",
	}
	boats := kept{
		"boats", "/apis/example.com/v1/namespaces/" + t.namespace + "/boats",
		func(name string) object {
			return object{
				"apiVersion": "example.com/v1", "kind": "Boat", "metadata": object{"name": name},
				"spec": object{"replicas": 1, "colour": "red"},
			}
		}, "autoscaling/v1",
	}
	t.part("a custom resource is served", func(p *part) {
		p.defineBoats(cached, uncached)
		p.sees("boats.example.com")
	})
	for _, k := range []kept{deployments, boats} {
		generationOf(t, k, cached, uncached)
		statusOf(t, k, cached, uncached)
		scaleOf(t, k, cached, uncached)
		rightsOf(t, k, cached)
	}
}

// defineBoats makes a custom resource with status and scale, and waits until both apiservers serve it.
func (p *part) defineBoats(servers ...*apiserver) {
	p.create(servers[0].admin, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object{
		"metadata": object{"name": "boats.example.com"},
		"spec": object{
			"group": "example.com", "scope": "Namespaced",
			"names": object{"plural": "boats", "singular": "boat", "kind": "Boat"},
			"versions": []object{{
				"name": "v1", "served": true, "storage": true,
				"schema": object{"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				"subresources": object{
					"status": object{},
					"scale":  object{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
				},
			}},
		},
	})
	for _, server := range servers {
		p.await(time.Minute, "boats of "+server.name, func() bool {
			return p.send(server.admin, "GET", "/apis/example.com/v1/boats", nil).code == 200
		})
	}
}

// generation is what metadata says.
func generation(o object) int64 { return o.number("metadata", "generation") }

func generationOf(t *test, k kept, cached, uncached *apiserver) {
	t.part("generation moves with spec alone, "+k.name, func(p *part) {
		path := k.path + "/generation"
		o := p.create(cached.admin, k.path, k.fresh("generation"))
		p.holds(generation(o) == 1, "created with generation %d", generation(o))
		for i, step := range []struct {
			field []string
			value any
			want  int64
		}{
			{[]string{"metadata", "labels", "a"}, "1", 1}, {[]string{"metadata", "labels", "b"}, "1", 1},
			{[]string{"spec", "replicas"}, 2, 2}, {[]string{"spec", "replicas"}, 3, 3},
			{[]string{"metadata", "labels", "a"}, "2", 3}, {[]string{"status", "replicas"}, 7, 3},
		} {
			server := []*apiserver{cached, uncached}[i%2]
			o = p.put(server.admin, path, o.set(step.value, step.field...))
			p.holds(generation(o) == step.want, "after %v: generation %d, want %d", step.field, generation(o), step.want)
		}
		before := o.revision()
		o = p.put(cached.admin, path, o.copied())
		p.holds(o.revision() == before, "a PUT of the same moved it from %d to %d", before, o.revision())
		p.holds(o.at("status", "replicas") == nil, "status was written: %v", o.at("status"))
		p.sees("3 after two changes of spec and four others, a PUT of the same stays at %d", before)
	})
}

func statusOf(t *test, k kept, cached, uncached *apiserver) {
	t.part("/status leaves spec and generation, "+k.name, func(p *part) {
		path := k.path + "/status"
		o := p.create(cached.admin, k.path, k.fresh("status"))
		written := o.copied().set(generation(o), "status", "observedGeneration").set(5, "status", "replicas").set(9, "spec", "replicas")
		written = p.put(uncached.admin, path+"/status", written)
		after := p.get(cached.admin, path)
		p.holds(reflect.DeepEqual(after, written), "written %v, read %v", written, after)
		p.holds(after.number("status", "observedGeneration") == 1 && after.number("status", "replicas") == 5,
			"the status is %v", after.at("status"))
		p.holds(generation(after) == 1 && reflect.DeepEqual(after.at("spec"), o.at("spec")), "generation %d, spec %v",
			generation(after), after.at("spec"))
		p.holds(after.revision() > o.revision(), "it is still at %d", after.revision())
		got := p.send(cached.admin, "PUT", path+"/status", o)
		p.holds(got.is(409, "Conflict"), "with a stale resourceVersion: got %v", got)
		patch := object{"status": object{"observedGeneration": 2}}
		after = p.expect(p.patch(uncached.admin, path+"/status", "merge-patch+json", patch), 200, "PATCH")
		p.holds(generation(after) == 1 && after.number("status", "observedGeneration") == 2, "the patch: %v", after.at("status"))
		p.sees("observedGeneration 2, generation 1")
	})
}

func scaleOf(t *test, k kept, cached, uncached *apiserver) {
	t.part("/scale moves replicas and generation, "+k.name, func(p *part) {
		path := k.path + "/scaled"
		o := p.create(cached.admin, k.path, k.fresh("scaled"))
		scale := p.get(uncached.admin, path+"/scale")
		p.holds(scale.text("apiVersion") == k.scale && scale.number("spec", "replicas") == 1 && scale.revision() == o.revision(),
			"got %v", scale)
		scale = p.put(uncached.admin, path+"/scale", scale.set(4, "spec", "replicas"))
		after := p.get(cached.admin, path)
		p.holds(after.number("spec", "replicas") == 4 && generation(after) == 2 && after.revision() == scale.revision(),
			"generation %d, %v at %d, the scale at %d", generation(after), after.at("spec"), after.revision(), scale.revision())
		got := p.send(cached.admin, "PUT", path+"/scale", scale.copied().set(fmt.Sprint(o.revision()), "metadata", "resourceVersion"))
		p.holds(got.is(409, "Conflict"), "with a stale resourceVersion: got %v", got)
		p.sees("4 replicas, generation 2")
	})
}

// rightsOf lets a user write the resource, but not its status.
func rightsOf(t *test, k kept, server *apiserver) {
	t.part("who may write it may not write /status, "+k.name, func(p *part) {
		group := map[string]string{"deployments": "apps", "boats": "example.com"}[k.name]
		rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + t.namespace
		p.create(server.admin, rbac+"/roles", object{"metadata": object{"name": k.name}, "rules": []object{{
			"apiGroups": []string{group}, "resources": []string{k.name}, "verbs": []string{"get", "update"},
		}}})
		p.create(server.admin, rbac+"/rolebindings", object{
			"metadata": object{"name": k.name},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": k.name},
			"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}},
		})
		path := k.path + "/rights"
		o := p.create(server.admin, k.path, k.fresh("rights"))
		p.await(time.Minute, "the rights", func() bool { return p.send(server.limited, "GET", path, nil).code == 200 })
		written := p.put(server.limited, path, o.copied().set(2, "spec", "replicas"))
		p.holds(generation(written) == 2, "generation %d", generation(written))
		got := p.send(server.limited, "PUT", path+"/status", written.copied().set(1, "status", "replicas"))
		p.holds(got.is(403, "Forbidden"), "got %v", got)
		p.holds(reflect.DeepEqual(p.get(server.admin, path), written), "it has changed")
		p.sees("%v", got)
	})
}
