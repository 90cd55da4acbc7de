// This file holds the scenarios of what the client library puts around a client.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"go.etcd.io/etcd/client/v3/naming/resolver"
	"go.etcd.io/etcd/client/v3/ordering"

	"sternpost/tests/etcd/servers"
)

func kubernetesInterface(t *test) {
	k, err := kubernetes.New(clientv3.Config{Endpoints: []string{t.server.Endpoint}, DialTimeout: 5 * time.Second})
	t.must(err, "connect")
	defer k.Close()
	var created kubernetes.PutResponse
	for i := range 5 {
		created, err = k.Kubernetes.OptimisticPut(t.ctx, fmt.Sprint(t.prefix, i), []byte("1"), 0, kubernetes.PutOptions{})
		t.must(err, "create")
		t.ok(created.Succeeded && created.Revision > 0, "create: %+v", created)
	}
	key := t.prefix + "4"
	again, err := k.Kubernetes.OptimisticPut(t.ctx, key, []byte("2"), 0, kubernetes.PutOptions{GetOnFailure: true})
	t.must(err, "create again")
	t.ok(!again.Succeeded && again.KV != nil && again.KV.ModRevision == created.Revision, "create again: %+v", again)
	lease, err := t.client.Grant(t.ctx, 100)
	t.must(err, "grant")
	update, err := k.Kubernetes.OptimisticPut(t.ctx, key, []byte("2"), created.Revision, kubernetes.PutOptions{LeaseID: lease.ID})
	t.must(err, "update")
	t.ok(update.Succeeded && update.Revision > created.Revision, "update: %+v", update)
	get, err := k.Kubernetes.Get(t.ctx, key, kubernetes.GetOptions{})
	t.must(err, "get")
	t.ok(string(get.KV.Value) == "2" && get.KV.Lease == int64(lease.ID) && get.Revision >= update.Revision, "get: %+v", get)
	get, err = k.Kubernetes.Get(t.ctx, key, kubernetes.GetOptions{Revision: created.Revision})
	t.must(err, "get at a revision")
	t.ok(string(get.KV.Value) == "1", "get at a revision: %+v", get)
	get, err = k.Kubernetes.Get(t.ctx, t.prefix+"none", kubernetes.GetOptions{})
	t.ok(err == nil && get.KV == nil && get.Revision > 0, "get of none: %+v %v", get, err)
	list, err := k.Kubernetes.List(t.ctx, t.prefix, kubernetes.ListOptions{Limit: 2})
	t.must(err, "list")
	t.ok(len(list.Kvs) == 2 && list.Count == 5, "list: %+v", list)
	rest, err := k.Kubernetes.List(t.ctx, t.prefix, kubernetes.ListOptions{Revision: list.Revision, Continue: string(list.Kvs[1].Key) + "\x00"})
	t.must(err, "rest of the list")
	t.ok(len(rest.Kvs) == 3 && rest.Count == 3, "rest of the list: %+v", rest)
	count, err := k.Kubernetes.Count(t.ctx, t.prefix, kubernetes.CountOptions{})
	t.ok(err == nil && count == 5, "count: %d %v", count, err)
	del, err := k.Kubernetes.OptimisticDelete(t.ctx, key, created.Revision, kubernetes.DeleteOptions{GetOnFailure: true})
	t.must(err, "delete of an old revision")
	t.ok(!del.Succeeded && del.KV != nil && del.KV.ModRevision == update.Revision, "delete of an old revision: %+v", del)
	del, err = k.Kubernetes.OptimisticDelete(t.ctx, key, update.Revision, kubernetes.DeleteOptions{})
	t.must(err, "delete")
	t.ok(del.Succeeded && del.Revision > update.Revision, "delete: %+v", del)
	del, err = k.Kubernetes.OptimisticDelete(t.ctx, key, update.Revision, kubernetes.DeleteOptions{GetOnFailure: true})
	t.ok(err == nil && !del.Succeeded && del.KV == nil, "delete of none: %+v %v", del, err)
}

func leasingCache(t *test) {
	cached, closeCached, err := leasing.NewKV(t.client, t.prefix+"leases/")
	t.must(err, "leasing")
	defer closeCached()
	second, closeSecond, err := leasing.NewKV(t.client, t.prefix+"leases/")
	t.must(err, "leasing")
	defer closeSecond()
	for i := range 5 {
		_, err := cached.Put(t.ctx, t.prefix+"a", fmt.Sprint(i))
		t.must(err, "put")
		for _, one := range []clientv3.KV{cached, second, cached} {
			get, err := one.Get(t.ctx, t.prefix+"a")
			t.must(err, "get")
			t.ok(string(get.Kvs[0].Value) == fmt.Sprint(i), "get: %v", get.Kvs)
		}
		_, err = second.Put(t.ctx, t.prefix+"a", "second")
		t.must(err, "put by the other")
		get, err := cached.Get(t.ctx, t.prefix+"a")
		t.must(err, "get")
		t.ok(string(get.Kvs[0].Value) == "second", "no stale value: %v", get.Kvs)
	}
	_, err = second.Delete(t.ctx, t.prefix+"a")
	t.must(err, "delete")
	get, err := cached.Get(t.ctx, t.prefix+"a")
	t.ok(err == nil && get.Count == 0, "deleted: %v %v", get, err)
}

func mirrorSyncer(t *test) {
	const keys = 1200 // more than a page of the syncer
	t.each(6, func(worker int) {
		for i := range keys / 6 {
			_, err := t.client.Put(t.ctx, fmt.Sprintf("%s%d/%d", t.prefix, worker, i), "1")
			t.ok(err == nil, "put: %v", err)
		}
	})
	syncer := mirror.NewSyncer(t.client, t.prefix, 0)
	pages, failed := syncer.SyncBase(t.ctx)
	copied := map[string]bool{}
	for page := range pages {
		for _, kv := range page.Kvs {
			copied[string(kv.Key)] = true
		}
	}
	t.must(<-failed, "base")
	t.ok(len(copied) == keys, "base has %d keys", len(copied))
	t.put("late", "1")
	events := collect(t, syncer.SyncUpdates(t.ctx), 1)
	t.ok(string(events[0].Kv.Key) == t.prefix+"late", "updates begin after the base: %v", events)
}

func orderingWrapper(t *test) {
	ordered := ordering.NewKV(t.client.KV, ordering.NewOrderViolationSwitchEndpointClosure(t.client))
	last := int64(0)
	for i := range 20 {
		_, err := ordered.Put(t.ctx, t.prefix+"a", fmt.Sprint(i))
		t.must(err, "put")
		get, err := ordered.Get(t.ctx, t.prefix+"a", clientv3.WithSerializable())
		t.must(err, "get")
		t.ok(get.Header.Revision > last && string(get.Kvs[0].Value) == fmt.Sprint(i), "a serializable read is not older: %v", get)
		last = get.Header.Revision
	}
	done, err := ordered.Txn(t.ctx).Then(clientv3.OpGet(t.prefix + "a")).Commit()
	t.ok(err == nil && done.Succeeded, "txn: %v", err)
}

func namespaceWrapper(t *test) {
	kv, watcher := namespace.NewKV(t.client.KV, t.prefix), namespace.NewWatcher(t.client.Watcher, t.prefix)
	lessor := namespace.NewLease(t.client.Lease, t.prefix)
	lease, err := lessor.Grant(t.ctx, 100)
	t.must(err, "grant")
	put, err := kv.Put(t.ctx, "a", "1", clientv3.WithLease(lease.ID))
	t.must(err, "put")
	get, err := kv.Get(t.ctx, "", clientv3.WithFromKey())
	t.must(err, "get")
	t.ok(get.Count == 1 && string(get.Kvs[0].Key) == "a", "only keys within: %v", get.Kvs)
	full, err := t.client.Get(t.ctx, t.prefix+"a")
	t.ok(err == nil && full.Count == 1, "the key has its prefix: %v", err)
	left, err := lessor.TimeToLive(t.ctx, lease.ID, clientv3.WithAttachedKeys())
	t.ok(err == nil && len(left.Keys) == 1 && string(left.Keys[0]) == "a", "attached: %v %v", left, err)
	done, err := kv.Txn(t.ctx).If(clientv3.Compare(clientv3.Version("a"), "=", 1)).Then(clientv3.OpDelete("", clientv3.WithFromKey(), clientv3.WithPrevKV())).Commit()
	t.must(err, "txn")
	t.ok(done.Succeeded && done.Responses[0].GetResponseDeleteRange().Deleted == 1, "delete all within: %v", done)
	events := collect(t, watcher.Watch(t.ctx, "", clientv3.WithPrefix(), clientv3.WithRev(put.Header.Revision)), 2)
	t.ok(string(events[1].Kv.Key) == "a" && events[1].Type == clientv3.EventTypeDelete, "watch within: %v", events)
}

func naming(t *test) {
	service := strings.TrimSuffix(t.prefix, "/")
	manager, err := endpoints.NewManager(t.client, service)
	t.must(err, "manager")
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	updates, err := manager.NewWatchChannel(ctx)
	t.must(err, "watch")
	t.must(manager.AddEndpoint(t.ctx, t.prefix+"one", endpoints.Endpoint{Addr: t.server.Endpoint, Metadata: "here"}), "add")
	update := <-updates
	t.ok(len(update) == 1 && update[0].Op == endpoints.Add && update[0].Endpoint.Addr == t.server.Endpoint, "added: %v", update)
	listed, err := manager.List(t.ctx)
	t.ok(err == nil && listed[t.prefix+"one"].Metadata == "here", "list: %v %v", listed, err)
	// The service that is found is the server itself: its health answers.
	builder, err := resolver.NewBuilder(t.client)
	t.must(err, "resolver")
	conn, err := grpc.NewClient("etcd:///"+service, grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	t.must(err, "connect by name")
	defer conn.Close()
	health, err := healthpb.NewHealthClient(conn).Check(t.ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	t.ok(err == nil && health.Status == healthpb.HealthCheckResponse_SERVING, "health: %v %v", health, err)
	t.must(manager.DeleteEndpoint(t.ctx, t.prefix+"one"), "delete")
	update = <-updates
	t.ok(len(update) == 1 && update[0].Op == endpoints.Delete, "deleted: %v", update)
}

// notYet is the text with which Sternpost answers what it does not do.
const notYet = "this server does not support "

func maintenance(t *test) {
	status, err := t.client.Status(t.ctx, t.server.Endpoint)
	t.must(err, "status")
	t.ok(status.Header.MemberId == status.Leader && status.DbSize > 0 && len(status.Errors) == 0, "status: %v", status)
	members, err := t.client.MemberList(t.ctx)
	t.must(err, "members")
	t.ok(len(members.Members) == 1 && members.Members[0].ID == status.Leader, "members: %v", members)
	alarms, err := t.client.AlarmList(t.ctx)
	t.ok(err == nil && len(alarms.Alarms) == 0, "alarms: %v %v", alarms, err)
	hash, err := t.client.HashKV(t.ctx, t.server.Endpoint, 0)
	t.ok(err == nil && hash.Hash != 0, "hash: %v %v", hash, err)
	t.snapshot()
}

// snapshot takes a snapshot if the server does them: from etcd it must come.
func (t *test) snapshot() {
	taken, err := t.client.SnapshotWithVersion(t.ctx)
	var size int64
	if err == nil {
		defer taken.Snapshot.Close()
		var file *os.File
		file, err = os.Create(filepath.Join(filepath.Dir(t.server.DataDir), "snapshot"))
		t.must(err, "file")
		defer file.Close()
		size, err = file.ReadFrom(taken.Snapshot)
	}
	refused := t.server.Kind == servers.Sternpost && err != nil && strings.Contains(err.Error(), notYet+"Snapshot yet")
	t.ok(refused || err == nil && size > 0, "snapshot: %d bytes, %v", size, err)
}
