// What both servers are asked, so that every family which appears only with use is there.
package main

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"sternpost/tests/etcd/servers"
)

func work(ctx context.Context, server *servers.Server) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	watched := client.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watched
	steps := []func() error{
		func() error { _, err := client.Put(ctx, "k", "v"); return err },
		func() error { _, err := client.Get(ctx, "k"); return err },
		func() error { return rpc(client.Get(ctx, "k", clientv3.WithRev(1<<40))) },
		func() error {
			_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("k"), "=", 2)).
				Then(clientv3.OpPut("k", "w"), clientv3.OpPut("k2", "w")).Commit()
			return err
		},
		func() error {
			_, err := client.Txn(ctx).Then(clientv3.OpGet("k"), clientv3.OpGet("k2")).Commit()
			return err
		},
		func() error { _, err := client.Delete(ctx, "k2"); return err },
		func() error { return lease(ctx, client) },
		func() error { _, err := client.Compact(ctx, 3, clientv3.WithCompactPhysical()); return err },
		func() error { _, err := client.Status(ctx, server.Endpoint); return err },
		func() error { _, err := client.HashKV(ctx, server.Endpoint, 0); return err },
		func() error { _, err := client.AlarmList(ctx); return err },
		func() error { _, err := client.MemberList(ctx); return err },
		func() error { _, err := client.Defragment(ctx, server.Endpoint); return err },
	}
	for number, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", number, err)
		}
	}
	for _, path := range []string{"/health", "/livez", "/readyz", "/version"} {
		if _, err := get(ctx, "http://"+server.Endpoint+path); err != nil {
			return err
		}
	}
	return nil
}

// rpc expects an error: one request is refused.
func rpc(_ *clientv3.GetResponse, err error) error {
	if err == nil {
		return fmt.Errorf("a revision in the future was answered")
	}
	return nil
}

func lease(ctx context.Context, client *clientv3.Client) error {
	granted, err := client.Grant(ctx, 60)
	if err != nil {
		return err
	}
	if _, err := client.KeepAliveOnce(ctx, granted.ID); err != nil {
		return err
	}
	_, err = client.Revoke(ctx, granted.ID)
	return err
}
