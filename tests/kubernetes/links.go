// Check 14: the apiserver reaches its store with certificates on both sides, or through a unix socket.
package main

import (
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

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
			prefix := "/registry/configmaps/" + t.namespace + "/"
			stored, err := c.store.client.Get(p.ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
			p.must(err, "the store")
			ours := 0
			for _, kv := range stored.Kvs {
				if at, there := want[filepath.Base(string(kv.Key))]; there && at.revision == kv.ModRevision {
					ours++
				}
			}
			p.holds(ours == len(want), "%d of %d objects are in the store as they were written", ours, len(want))
			p.sees("%d writes, one restart of the store, %d objects", writes.acks.Load(), len(want))
		})
		if l.link != mutual || c == nil || c.store == nil {
			continue
		}
		t.part("strangers are refused", func(p *part) {
			ours := t.world.pki.clientConfig("store-client")
			ours.NextProtos = []string{"h2"}
			bare := ours.Clone()
			bare.Certificates = nil
			dir := filepath.Join(c.dir, "strangers")
			p.must(os.Mkdir(dir, 0o700), "a directory")
			foreign := ours.Clone()
			foreign.Certificates = newPKI(dir).clientConfig("store-client").Certificates
			address := strings.TrimPrefix(c.store.url, "https://")
			p.must(handshake(address, ours), "who has a certificate")
			none, other := handshake(address, bare), handshake(address, foreign)
			for _, err := range []error{none, other} {
				p.holds(err != nil && strings.Contains(err.Error(), "remote error: tls:"), "a stranger gets: %v", err)
			}
			response, err := http.Get("http://" + address + "/version")
			p.holds(err != nil || response.StatusCode >= 400, "in the clear: got %v", response)
			p.sees("without a certificate: %v; with one of another authority: %v", none, other)
		})
	}
}

// handshake opens a connection and speaks: in TLS 1.3 a client hears only then that it is refused. Who is accepted hears
// the settings of HTTP/2.
func handshake(address string, config *tls.Config) error {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	// A preface of HTTP/2, and settings without any: the server answers with its own.
	if _, err = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return err
	}
	if err = conn.SetReadDeadline(time.Now().Add(requestLimit)); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 9))
	return err
}
