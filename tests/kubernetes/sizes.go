// Check 9: how large an object may be.
package main

import (
	"fmt"
	"reflect"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// large is a ConfigMap near so many bytes. Values may be 1 MiB together and annotations 256 KiB; names of keys make the rest,
// which the apiserver notes once more, in managedFields.
func large(name string, bytes int) object {
	const keyBytes = 250
	data := object{"value": strings.Repeat("v", mib)}
	for i := 0; (keyBytes+8)*i < bytes-mib-240*kib; i++ {
		data[fmt.Sprintf("%0*d", keyBytes, i)] = ""
	}
	return configMap(name, data).set(strings.Repeat("a", 240*kib), "metadata", "annotations", "a")
}

func sizes(t *test) {
	cached, uncached := t.both()
	path := t.configMaps()
	bytes := func(p *part, name string) int64 {
		got, err := t.world.shared.store.client.Get(p.ctx, "/registry/configmaps/"+t.namespace+"/"+name, clientv3.WithLimit(1))
		p.must(err, "the store")
		p.holds(len(got.Kvs) == 1, "the store has no %s", name)
		return int64(len(got.Kvs[0].Value))
	}
	for _, server := range []*apiserver{cached, uncached} {
		for _, c := range []struct {
			name    string
			bytes   int
			managed bool
		}{
			{"1.4 MiB are stored", mib * 132 / 100, true},
			{"what is too large with managedFields alone is stored without", mib * 140 / 100, false},
		} {
			t.part(c.name+", "+server.name, func(p *part) {
				name := fmt.Sprintf("large-%v-%s", c.managed, server.name)
				o := p.create(server.admin, path, large(name, c.bytes))
				p.holds((o.at("metadata", "managedFields") != nil) == c.managed, "managedFields: want %v", c.managed)
				stored := bytes(p, name)
				p.holds(stored >= mib*139/100 && stored < mib*150/100, "%d bytes are stored", stored)
				read := p.get(t.other(server).admin, path+"/"+name)
				p.holds(reflect.DeepEqual(read, o), "read otherwise")
				p.sees("%d bytes in the store", stored)
			})
		}
		t.part("1.6 MiB are refused, "+server.name, func(p *part) {
			name := "refused-" + server.name
			got := p.send(server.admin, "POST", path, large(name, mib*16/10))
			p.holds(got.code >= 400 && strings.Contains(got.body.text("message"), "etcdserver: request is too large"), "got %v", got)
			p.expect(p.send(server.admin, "GET", path+"/"+name, nil), 404, "GET")
			// What is there stays as it is when it is to become too large.
			o := p.create(server.admin, path, configMap(name, object{"a": "1"}))
			grown := large(name, mib*16/10).set(o.text("metadata", "resourceVersion"), "metadata", "resourceVersion")
			again := p.send(server.admin, "PUT", path+"/"+name, grown)
			p.holds(strings.Contains(again.body.text("message"), "etcdserver: request is too large"), "got %v", again)
			p.agrees(p.get(server.admin, path+"/"+name), o.revision(), 1)
			p.sees("%v", got)
		})
	}
}
