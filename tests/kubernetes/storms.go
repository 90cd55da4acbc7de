// Check 15: many resources and many objects come and go, and the store is as small afterwards as before.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"sternpost/tests/etcd/servers"
)

const (
	stormResources = 200
	stormEach      = 5 // objects of each of these resources
	stormObjects   = 5000
	stormWrites    = 4 // of each object
	stormBytes     = 10 * kib
	settledBy      = 2 * time.Minute
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func storms(t *test) {
	c, server := t.alone(options{}, "--etcd-compaction-interval=0", "--delete-collection-workers=8")
	n := t.scaled(stormObjects)
	var standing map[string]version
	var before usage
	t.part("what stands all the while", func(p *part) {
		for _, resource := range []string{"configmaps", "secrets"} {
			p.must(fill(p, server.admin, t.in(resource), "standing", n, 1), "%s", resource)
		}
		p.compacts(c.store)
		before = p.uses(c.store)
		standing, _ = p.listed(server.admin, t.configMaps())
		p.holds(len(standing) == n, "%d objects", len(standing))
		p.sees("%d ConfigMaps and as many Secrets: %v", n, before)
	})
	if t.failed > 0 {
		return
	}
	storm := func(name string) {
		t.part("a namespace of many objects is deleted, "+name, func(p *part) {
			made, deleted, top := stormed(p, c, server.admin, t.namespace+"-"+name, n)
			after, took := p.back(c.store, before)
			p.sees("%d objects written in %.0f s, deleted in %.0f s; at the top %v; %.0f s after compaction %v", n, made.Seconds(),
				deleted.Seconds(), top, took.Seconds(), after)
			before.memory = cmp.Or(before.memory, after.memory)
		})
	}
	// Caches and buffers fill with use: the memory to come back to is that after a first storm.
	before.memory = 0
	storm("first")
	t.part("resources are defined, used and deleted", func(p *part) {
		resources := t.scaled(stormResources)
		began := time.Now()
		p.must(each(4, func(w int) error {
			for i := w; i < resources; i += 4 {
				if err := defined(p, server.admin, i); err != nil {
					return err
				}
			}
			return nil
		}), "a resource")
		made, top := time.Since(began), p.uses(c.store)
		p.must(each(4, func(w int) error {
			for i := w; i < resources; i += 4 {
				if err := undefined(p, server.admin, i); err != nil {
					return err
				}
			}
			return nil
		}), "a resource")
		p.awaitEvery(time.Second, 5*time.Minute, "all resources are gone", func() bool {
			return len(p.get(server.admin, definitions).items()) == 0
		})
		left, err := p.keys(c.store, "/registry/storm.example.com/")
		p.must(err, "the store")
		p.holds(left == 0, "%d custom objects are left in the store", left)
		deleted := time.Since(began) - made
		after, took := p.back(c.store, before)
		p.sees("%d with %d objects each, defined and used in %.0f s, deleted in %.0f s; at the top %v; %.0f s after compaction %v",
			resources, stormEach, made.Seconds(), deleted.Seconds(), top, took.Seconds(), after)
	})
	storm("again")
	t.part("what stood is as it was", func(p *part) {
		now, _ := p.listed(server.admin, t.configMaps())
		p.holds(maps.Equal(now, standing), "%d objects, were %d", len(now), len(standing))
		p.sees("%d objects", len(now))
	})
}

// stormed makes a namespace of n objects, each written several times, and deletes it.
func stormed(p *part, c *cluster, a *api, namespace string, n int) (made, deleted time.Duration, top usage) {
	p.create(a, "/api/v1/namespaces", object{"metadata": object{"name": namespace}})
	resources := map[string]int{"configmaps": n * 4 / 10, "secrets": n * 3 / 10, "serviceaccounts": n / 10, "pods": n / 5}
	began := time.Now()
	for resource, count := range resources {
		p.must(fill(p, a, "/api/v1/namespaces/"+namespace+"/"+resource, "storm", count, stormWrites), "%s", resource)
	}
	made, top = time.Since(began), p.uses(c.store)
	p.endNamespace(a, namespace, resources)
	deleted = time.Since(began) - made
	for resource := range resources {
		left, err := p.keys(c.store, "/registry/"+resource+"/"+namespace+"/")
		p.must(err, "the store")
		p.holds(left == 0, "%d %s are left in the store", left, resource)
	}
	return made, deleted, top
}

// back compacts, and waits until the store uses no more than one and a half times what it did. Nothing is asked of an etcd,
// which is defragmented, and only tells.
func (p *part) back(s *store, before usage) (now usage, took time.Duration) {
	p.compacts(s)
	began := time.Now()
	for now = p.uses(s); s.server.Kind != servers.Etcd && !now.within(before); now = p.uses(s) {
		p.holds(time.Since(began) < settledBy && p.ctx.Err() == nil, "before %v, after %v", before, now)
		time.Sleep(time.Second)
	}
	return now, time.Since(began)
}

// fill creates objects of ten kilobytes, and writes each of them so many times.
func fill(p *part, a *api, path, name string, n, writes int) error {
	const writers = 8
	value := strings.Repeat("v", stormBytes)
	return each(writers, func(w int) error {
		for i := w; i < n; i += writers {
			o := valued(fmt.Sprintf("%s-%05d", name, i), value)
			if strings.HasSuffix(path, "/pods") {
				o["spec"] = object{"containers": []object{{"name": "one", "image": "example.com/one"}}}
			}
			for write := range writes {
				method, target, want := "POST", path, http.StatusCreated
				if write > 0 {
					method, target, want = "PUT", path+"/"+o.name(), http.StatusOK
					o.set(fmt.Sprint(write), "metadata", "annotations", "write")
				}
				got, err := a.send(p.ctx, method, target, o)
				if err != nil || got.code != want {
					return fmt.Errorf("%s %s: %v: %v", method, target, err, got)
				}
				o = got.body
			}
		}
		return nil
	})
}

func stormName(i int) string { return fmt.Sprintf("storm%03ds", i) }

// defined makes a resource, and objects of it once it is served.
func defined(p *part, a *api, i int) error {
	plural, kind := stormName(i), fmt.Sprintf("Storm%03d", i)
	got, err := a.send(p.ctx, "POST", definitions, object{
		"metadata": object{"name": plural + ".storm.example.com"},
		"spec": object{
			"group": "storm.example.com", "scope": "Cluster", "names": object{"plural": plural, "kind": kind},
			"versions": []object{{
				"name": "v1", "served": true, "storage": true,
				"schema": object{"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	})
	if err != nil || got.code != http.StatusCreated {
		return fmt.Errorf("%s: %v: %v", plural, err, got)
	}
	path := "/apis/storm.example.com/v1/" + plural
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if got, err = a.send(p.ctx, "GET", path, nil); err == nil && got.code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not served: %v: %v", plural, err, got)
		}
	}
	for j := range stormEach {
		o := valued(fmt.Sprintf("object-%d", j), plural).set("storm.example.com/v1", "apiVersion").set(kind, "kind")
		// A resource that has just been established refuses to create for some seconds.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if got, err = a.send(p.ctx, "POST", path, o); err == nil && got.code == http.StatusCreated {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("an object of %s: %v: %v", plural, err, got)
			}
		}
	}
	got, err = a.send(p.ctx, "GET", path, nil)
	if err != nil || len(got.body.items()) != stormEach {
		return fmt.Errorf("%s has %d objects, want %d: %v: %v", plural, len(got.body.items()), stormEach, err, got)
	}
	return nil
}

// undefined deletes a resource; its objects go with it.
func undefined(p *part, a *api, i int) error {
	got, err := a.send(p.ctx, "DELETE", definitions+"/"+stormName(i)+".storm.example.com", nil)
	if err != nil || got.code != http.StatusOK {
		return fmt.Errorf("%s: %v: %v", stormName(i), err, got)
	}
	return nil
}

// endNamespace does what the controller of namespaces would: it deletes what is inside, and takes the finalizer away.
func (p *part) endNamespace(a *api, namespace string, resources map[string]int) {
	path := "/api/v1/namespaces/" + namespace
	now := p.expect(p.send(a, "DELETE", path, nil), http.StatusOK, "DELETE "+path)
	p.holds(now.text("status", "phase") == "Terminating", "the namespace is %s", now.text("status", "phase"))
	for resource := range resources {
		p.awaitEvery(0, 5*time.Minute, "all "+resource+" are deleted", func() bool {
			// A request may take no more than a minute, so that it may take several.
			p.send(a, "DELETE", path+"/"+resource, nil)
			return len(p.get(a, query(path+"/"+resource, "limit", "1")).items()) == 0
		})
	}
	now = p.get(a, path)
	now.set([]any{}, "spec", "finalizers")
	p.expect(p.send(a, "PUT", path+"/finalize", now), http.StatusOK, "PUT "+path+"/finalize")
	p.expect(p.send(a, "GET", path, nil), http.StatusNotFound, "GET "+path)
}
