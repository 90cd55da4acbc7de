// Check 14: the apiserver reaches its store with certificates on both sides, or through a unix socket.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func links(t *test) {
	for _, l := range []struct {
		link link
		name string
	}{{mutual, "certificates on both sides"}, {socket, "a unix socket"}} {
		var c *cluster
		t.part("write, watch, list through "+l.name, func(p *part) {
			var server *apiserver
			c, server = p.cluster(options{link: l.link}, "apiserver")
			path := t.configMaps()
			f, ended := p.follow(server.admin, path, lastName)
			writes := p.load(path, 4, 50, 0, server.admin)
			writes.goesOn(p, 300)
			p.must(c.store.restart(p.ctx), "a restart of the store")
			writes.goesOn(p, 300)
			want := writes.end(p)
			want[lastName] = versionOf(p.create(server.admin, path, valued(lastName, "")))
			list, _ := p.listed(server.admin, path)
			p.holds(maps.Equal(list, want), "%d objects are listed, want %d", len(list), len(want))
			p.must(<-ended, "the watch")
			p.holds(maps.Equal(f.state, want), "the watch ends with %d objects, want %d", len(f.state), len(want))
			stored, err := c.store.client.Get(p.ctx, "/registry/configmaps/"+t.namespace+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			p.must(err, "the store")
			ours := 0
			for _, kv := range stored.Kvs {
				if at, there := want[filepath.Base(string(kv.Key))]; there && at.revision == kv.ModRevision {
					ours++
				}
			}
			p.holds(ours == len(want), "%d of %d objects are in the store as they were written", ours, len(want))
			p.sees("%s, %d writes, one restart of the store, %d objects", c.store.url[:len("https")], writes.acks.Load(), len(want))
		})
		if l.link != mutual || c == nil || c.store == nil {
			continue
		}
		t.part("strangers are refused", func(p *part) {
			ours := t.world.pki.clientConfig("store-client")
			bare := ours.Clone()
			bare.Certificates = nil
			dir := filepath.Join(c.dir, "strangers")
			p.must(os.Mkdir(dir, 0o700), "a directory")
			foreign := ours.Clone()
			foreign.Certificates = newPKI(dir).clientConfig("store-client").Certificates
			p.must(reaches(p.ctx, c.store.url, ours), "who has a certificate")
			var said []error
			for _, config := range []*tls.Config{bare, foreign, nil} {
				err := reaches(p.ctx, c.store.url, config)
				p.holds(err != nil, "a stranger is answered")
				said = append(said, err)
			}
			p.sees("without a certificate, with one of another authority, in the clear: %q", fmt.Sprint(said))
		})
	}
}

// reaches makes one request with a configuration of the client's.
func reaches(ctx context.Context, url string, config *tls.Config) error {
	if config == nil {
		url = "http" + url[len("https"):]
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{url}, TLS: config, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = client.Get(ctx, "compact_rev_key")
	return err
}
