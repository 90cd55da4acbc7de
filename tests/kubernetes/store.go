// The store below the apiservers: how they reach it, and what it says of a key when asked directly.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"

	"sternpost/tests/etcd/servers"
)

// link is how an apiserver reaches its store.
type link int

const (
	plain  link = iota // http
	mutual             // https, and both show a certificate
	socket             // a unix socket
)

// store is a running Sternpost or etcd, and a client of it.
type store struct {
	server *servers.Server
	url    string
	client *clientv3.Client
	flags  []string // that apiservers reach it by
}

func startStore(ctx context.Context, kind servers.Kind, dir string, p *pki, o options) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	binary, err := servers.Binary(kind)
	if err != nil {
		return nil, err
	}
	address, err := servers.FreePort()
	if err != nil {
		return nil, err
	}
	url, flags := "http://"+address, o.flags
	var client *tls.Config
	s := &store{}
	switch o.link {
	case mutual:
		url, client = "https://"+address, p.clientConfig("store-client")
		flags = append(flags, "--client-cert-auth", "--trusted-ca-file="+p.path("ca.crt"),
			"--cert-file="+p.path("server.crt"), "--key-file="+p.path("server.key"))
		s.flags = []string{"--etcd-cafile=" + p.path("ca.crt"),
			"--etcd-certfile=" + p.path("store-client.crt"), "--etcd-keyfile=" + p.path("store-client.key")}
	case socket:
		url = "unix://" + filepath.Join(dir, "store.sock")
	}
	s.url, s.flags = url, append(s.flags, "--etcd-servers="+url)
	if s.server, err = servers.StartURL(ctx, kind, binary, dir, url, client, flags...); err != nil {
		return nil, err
	}
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{url}, TLS: client, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	return s, err
}

// restart kills the store and starts it again on its data.
func (s *store) restart(ctx context.Context) error {
	if err := s.server.Kill(); err != nil {
		return err
	}
	return s.server.Run(ctx)
}

func (s *store) end() {
	if s.client != nil {
		_ = s.client.Close()
	}
	if s.server.Alive() {
		_ = s.server.Kill()
	}
}

// revision is that of the store now.
func (s *store) revision(ctx context.Context) (int64, error) {
	answer, err := s.client.Get(ctx, "compact_rev_key")
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// compact does what the apiserver that leads does: it notes the revision under a key that all apiservers watch, guarded by
// the key's version, and compacts.
func (s *store) compact(ctx context.Context, revision int64) error {
	const key = "compact_rev_key"
	now, err := s.client.Get(ctx, key)
	if err != nil {
		return err
	}
	version := int64(0)
	if len(now.Kvs) > 0 {
		version = now.Kvs[0].Version
	}
	answer, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(key), "=", version)).
		Then(clientv3.OpPut(key, strconv.FormatInt(revision, 10))).Commit()
	if err != nil {
		return err
	}
	if !answer.Succeeded {
		return fmt.Errorf("%s is no longer at version %d", key, version)
	}
	_, err = s.client.Compact(ctx, revision)
	return err
}
