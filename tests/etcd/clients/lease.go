// This file holds the scenarios of leases and watches.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func leases(t *test) {
	lease, err := t.client.Grant(t.ctx, 300)
	t.must(err, "grant")
	t.ok(lease.TTL == 300 && lease.ID != 0, "grant: %v", lease)
	t.put("a", "1", clientv3.WithLease(lease.ID))
	t.put("b", "1", clientv3.WithLease(lease.ID))
	left, err := t.client.TimeToLive(t.ctx, lease.ID, clientv3.WithAttachedKeys())
	t.must(err, "time to live")
	t.ok(left.GrantedTTL == 300 && left.TTL <= 300 && left.TTL > 200 && len(left.Keys) == 2, "time to live: %v", left)
	t.put("a", "2", clientv3.WithIgnoreLease())
	t.put("b", "2")
	left, err = t.client.TimeToLive(t.ctx, lease.ID, clientv3.WithAttachedKeys())
	t.must(err, "time to live")
	t.ok(len(left.Keys) == 1 && string(left.Keys[0]) == t.prefix+"a", "a put without the lease detaches: %v", left)
	all, err := t.client.Leases(t.ctx)
	t.must(err, "list")
	found := false
	for _, one := range all.Leases {
		found = found || one.ID == lease.ID
	}
	t.ok(found, "the list has the lease")
	_, err = t.client.Revoke(t.ctx, lease.ID)
	t.must(err, "revoke")
	get, err := t.client.Get(t.ctx, t.prefix, clientv3.WithPrefix())
	t.must(err, "get")
	t.ok(get.Count == 1 && string(get.Kvs[0].Key) == t.prefix+"b", "revoke deletes what is attached: %v", get.Kvs)
	left, err = t.client.TimeToLive(t.ctx, lease.ID)
	t.must(err, "time to live of none")
	t.ok(left.TTL == -1, "time to live of none: %v", left)
}

func leaseExpiry(t *test) {
	lease, err := t.client.Grant(t.ctx, 1)
	t.must(err, "grant")
	t.ok(lease.TTL >= 1, "the TTL is what is granted: %v", lease)
	revision := t.put("a", "1", clientv3.WithLease(lease.ID))
	watch := t.client.Watch(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithPrevKV())
	seen := <-watch
	t.must(seen.Err(), "watch")
	t.ok(len(seen.Events) == 1 && seen.Events[0].Type == clientv3.EventTypeDelete, "expiry deletes: %v", seen.Events)
	t.ok(seen.Events[0].PrevKv != nil && seen.Events[0].PrevKv.Lease == int64(lease.ID), "with the previous value: %v", seen.Events)
	_, err = t.client.KeepAliveOnce(t.ctx, lease.ID)
	t.is(err, rpctypes.ErrLeaseNotFound, "keep alive after expiry")
}

func keepAlive(t *test) {
	lease, err := t.client.Grant(t.ctx, 3)
	t.must(err, "grant")
	t.put("a", "1", clientv3.WithLease(lease.ID))
	answers, err := t.client.KeepAlive(t.ctx, lease.ID)
	t.must(err, "keep alive")
	for range 4 {
		answer, open := <-answers
		t.ok(open && answer.TTL == lease.TTL && answer.ID == lease.ID, "keep alive answers with the TTL: %v", answer)
	}
	once, err := t.client.KeepAliveOnce(t.ctx, lease.ID)
	t.must(err, "keep alive once")
	t.ok(once.TTL == lease.TTL, "keep alive once: %v", once)
	get, err := t.client.Get(t.ctx, t.prefix+"a")
	t.must(err, "get")
	t.ok(get.Count == 1, "the key lives")
	_, err = t.client.Revoke(t.ctx, lease.ID)
	t.must(err, "revoke")
	for range answers {
	}
	t.ok(t.ctx.Err() == nil, "revoke ends the channel")
}

// collect reads a watch until n events are there.
func collect(t *test, watch clientv3.WatchChan, n int) (events []*clientv3.Event) {
	for len(events) < n {
		seen, open := <-watch
		if !open {
			t.must(errors.New("closed"), "watch after %d events of %d", len(events), n)
		}
		t.must(seen.Err(), "watch")
		events = append(events, seen.Events...)
	}
	return events
}

func watches(t *test) {
	first := t.put("a", "1")
	t.put("a", "2")
	_, err := t.client.Txn(t.ctx).Then(clientv3.OpPut(t.prefix+"b", "1"), clientv3.OpDelete(t.prefix+"a")).Commit()
	t.must(err, "txn")
	t.put("z", "end")
	events := collect(t, t.client.Watch(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithPrevKV()), 5)
	shown := ""
	for _, event := range events {
		shown += event.Type.String()[:1] + strings.TrimPrefix(string(event.Kv.Key), t.prefix)
		if event.PrevKv != nil {
			shown += string(event.PrevKv.Value)
		}
		shown += " "
	}
	t.ok(shown == "Pa Pa1 Pb Da2 Pz ", "watch from the past: %s", shown)
	t.ok(events[0].IsCreate() && events[1].IsModify() && events[2].Kv.ModRevision == events[3].Kv.ModRevision, "events: %v", events)
	filtered := collect(t, t.client.Watch(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithFilterPut()), 1)
	t.ok(filtered[0].Type == clientv3.EventTypeDelete, "without puts: %v", filtered)
	ctx, cancel := context.WithCancel(t.ctx)
	created := t.client.Watch(ctx, t.prefix+"live", clientv3.WithCreatedNotify())
	notice := <-created
	t.ok(notice.Created && notice.Err() == nil, "created notify: %v", notice)
	t.put("live", "1")
	t.ok(string(collect(t, created, 1)[0].Kv.Value) == "1", "live event")
	cancel()
	for range created {
	}
	t.ok(t.ctx.Err() == nil, "a cancelled watch ends")
}

func watchFragments(t *test) {
	value := strings.Repeat("v", 1<<20)
	first := t.put("a", value)
	for i := range 5 {
		t.put(fmt.Sprint(i), value)
	}
	events := collect(t, t.client.Watch(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithFragment()), 6)
	for i, event := range events {
		t.ok(len(event.Kv.Value) == len(value) && (i == 0 || event.Kv.ModRevision > events[i-1].Kv.ModRevision), "fragment %d", i)
	}
}

func watchProgress(t *test) {
	watch := t.client.Watch(t.ctx, t.prefix+"idle", clientv3.WithProgressNotify())
	before := t.put("other", "1")
	last := int64(0)
	for last < before {
		seen, open := <-watch
		t.ok(open && seen.Err() == nil && seen.IsProgressNotify(), "progress: %v", seen)
		t.ok(seen.Header.Revision >= last, "progress does not go back: %d after %d", seen.Header.Revision, last)
		last = seen.Header.Revision
		if !open {
			return
		}
	}
	asked := t.client.Watch(t.ctx, t.prefix+"asked", clientv3.WithCreatedNotify())
	<-asked
	t.must(t.client.RequestProgress(t.ctx), "request progress")
	seen := <-asked
	t.ok(seen.IsProgressNotify() && seen.Header.Revision >= before, "progress on request: %v", seen)
}
