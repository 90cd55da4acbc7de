// This file holds the scenarios of keys, transactions and errors.
package main

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func kv(t *test) {
	first := t.put("a", "1")
	second := t.put("a", "2")
	t.ok(second > first, "revisions go up: %d, %d", first, second)
	get, err := t.client.Get(t.ctx, t.prefix+"a")
	t.must(err, "get")
	kv := get.Kvs[0]
	t.ok(kv.CreateRevision == first && kv.ModRevision == second && kv.Version == 2 && string(kv.Value) == "2", "get: %v", kv)
	old, err := t.client.Get(t.ctx, t.prefix+"a", clientv3.WithRev(first))
	t.must(err, "get at a revision")
	t.ok(string(old.Kvs[0].Value) == "1" && old.Header.Revision >= second, "get at a revision: %v", old)
	for i, value := range []string{"3", "1", "2"} {
		t.put(fmt.Sprintf("s/%d", i), value)
	}
	for _, c := range []struct {
		want    string
		options []clientv3.OpOption
	}{
		{"012", []clientv3.OpOption{clientv3.WithPrefix()}},
		{"210", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)}},
		{"120", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend)}},
		{"012", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByVersion, clientv3.SortDescend)}},
		{"01", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(2)}},
		{"2", clientv3.WithLastRev()}, {"0", clientv3.WithFirstRev()}, {"2", clientv3.WithLastKey()}, {"0", clientv3.WithFirstCreate()},
		{"12", []clientv3.OpOption{clientv3.WithRange(t.prefix + "s/3")}},
		{"012", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSerializable(), clientv3.WithKeysOnly()}},
	} {
		from := t.prefix + "s/"
		if c.want == "12" {
			from += "1"
		}
		list, err := t.client.Get(t.ctx, from, c.options...)
		t.must(err, "list")
		got := ""
		for _, kv := range list.Kvs {
			got += strings.TrimPrefix(string(kv.Key), t.prefix+"s/")
		}
		t.ok(got == c.want, "list: want %s, got %s", c.want, got)
	}
	count, err := t.client.Get(t.ctx, t.prefix+"s/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	t.must(err, "count")
	t.ok(count.Count == 3 && len(count.Kvs) == 0, "count: %v", count)
	put, err := t.client.Put(t.ctx, t.prefix+"a", "3", clientv3.WithPrevKV())
	t.must(err, "put")
	t.ok(string(put.PrevKv.Value) == "2", "previous: %v", put.PrevKv)
	del, err := t.client.Delete(t.ctx, t.prefix+"s/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	t.must(err, "delete")
	t.ok(del.Deleted == 3 && len(del.PrevKvs) == 3, "delete: %v", del)
	del, err = t.client.Delete(t.ctx, t.prefix+"s/", clientv3.WithPrefix())
	t.must(err, "delete nothing")
	t.ok(del.Deleted == 0, "delete nothing: %v", del)
}

func txn(t *test) {
	key := t.prefix + "a"
	create := func(value string) *clientv3.TxnResponse {
		r, err := t.client.Txn(t.ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, value), clientv3.OpPut(key+"b", value), clientv3.OpGet(key, clientv3.WithPrefix())).
			Else(clientv3.OpGet(key), clientv3.OpDelete(t.prefix+"none")).Commit()
		t.must(err, "txn")
		return r
	}
	done := create("1")
	t.ok(done.Succeeded && len(done.Responses) == 3, "created: %v", done)
	seen := done.Responses[2].GetResponseRange()
	t.ok(seen.Count == 2 && seen.Kvs[0].ModRevision == seen.Kvs[1].ModRevision && seen.Kvs[0].ModRevision == done.Header.Revision, "own writes: %v", seen)
	refused := create("2")
	t.ok(!refused.Succeeded && string(refused.Responses[0].GetResponseRange().Kvs[0].Value) == "1", "not created twice: %v", refused)
	for _, c := range []struct {
		compare clientv3.Cmp
		holds   bool
	}{
		{clientv3.Compare(clientv3.Value(key), "=", "1"), true}, {clientv3.Compare(clientv3.Value(key), ">", "1"), false},
		{clientv3.Compare(clientv3.Value(key), "!=", "0"), true}, {clientv3.Compare(clientv3.Version(key), "<", 2), true},
		{clientv3.Compare(clientv3.ModRevision(key), ">", 0), true}, {clientv3.Compare(clientv3.LeaseValue(key), "=", 0), true},
		{clientv3.Compare(clientv3.Version(t.prefix+"none"), "=", 0), true}, {clientv3.Compare(clientv3.Value(t.prefix+"none"), "=", ""), false},
		{clientv3.Compare(clientv3.Version(key), "=", 1).WithPrefix(), true}, {clientv3.Compare(clientv3.Value(key), "=", "2").WithPrefix(), false},
	} {
		r, err := t.client.Txn(t.ctx).If(c.compare).Commit()
		t.must(err, "compare")
		t.ok(r.Succeeded == c.holds, "compare %v: want %v", c.compare, c.holds)
	}
	nested := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version(key), "=", 99)}, nil, []clientv3.Op{clientv3.OpPut(key, "nested")})
	r, err := t.client.Txn(t.ctx).Then(nested, clientv3.OpGet(key)).Commit()
	t.must(err, "nested")
	t.ok(string(r.Responses[1].GetResponseRange().Kvs[0].Value) == "nested", "nested: %v", r)
}

func errorsByType(t *test) {
	key := t.prefix + "a"
	revision := t.put("a", "1")
	try := func(want error, options ...clientv3.OpOption) {
		_, err := t.client.Put(t.ctx, key, "x", options...)
		t.is(err, want, "put")
	}
	try(rpctypes.ErrLeaseNotFound, clientv3.WithLease(4711))
	_, err := t.client.Put(t.ctx, key, "x", clientv3.WithIgnoreValue())
	t.is(err, rpctypes.ErrValueProvided, "a value that is to be ignored")
	_, err = t.client.Put(t.ctx, key, "x", clientv3.WithIgnoreLease(), clientv3.WithLease(4711))
	t.is(err, rpctypes.ErrLeaseProvided, "a lease that is to be ignored")
	_, err = t.client.Put(t.ctx, t.prefix+"none", "", clientv3.WithIgnoreValue())
	t.is(err, rpctypes.ErrKeyNotFound, "no value to keep")
	_, err = t.client.Put(t.ctx, "", "x")
	t.is(err, rpctypes.ErrEmptyKey, "put without a key")
	_, err = t.client.Get(t.ctx, "")
	t.is(err, rpctypes.ErrEmptyKey, "get without a key")
	_, err = t.client.Get(t.ctx, key, clientv3.WithRev(1<<40))
	t.is(err, rpctypes.ErrFutureRev, "get from the future")
	_, err = t.client.Compact(t.ctx, 1<<40)
	t.is(err, rpctypes.ErrFutureRev, "compact the future")
	_, err = t.client.Txn(t.ctx).Then(clientv3.OpPut(key, "1"), clientv3.OpPut(key, "2")).Commit()
	t.is(err, rpctypes.ErrDuplicateKey, "two puts of a key")
	_, err = t.client.Txn(t.ctx).Then(clientv3.OpPut(key, "1"), clientv3.OpDelete(t.prefix, clientv3.WithPrefix())).Commit()
	t.is(err, rpctypes.ErrDuplicateKey, "a put within a deleted range")
	var many []clientv3.Op
	for i := range 129 {
		many = append(many, clientv3.OpPut(fmt.Sprint(key, i), "x"))
	}
	_, err = t.client.Txn(t.ctx).Then(many...).Commit()
	t.is(err, rpctypes.ErrTooManyOps, "129 operations")
	_, err = t.client.Txn(t.ctx).Then(many[:128]...).Commit()
	t.ok(err == nil, "128 operations: %v", err)
	_, err = t.client.Put(t.ctx, key, strings.Repeat("x", 1600<<10))
	t.is(err, rpctypes.ErrRequestTooLarge, "1600 KiB")
	_, err = t.client.Grant(t.ctx, 9_000_000_001)
	t.is(err, rpctypes.ErrLeaseTTLTooLarge, "a TTL of 9,000,000,001")
	_, err = t.client.Revoke(t.ctx, 4711)
	t.is(err, rpctypes.ErrLeaseNotFound, "revoke what is not there")
	_, err = t.client.KeepAliveOnce(t.ctx, 4711)
	t.is(err, rpctypes.ErrLeaseNotFound, "keep alive what is not there")
	_, err = t.client.UserAdd(t.ctx, "", "")
	var typed rpctypes.EtcdError
	t.ok(err != nil, "a user without a name is refused")
	_, err = t.client.Get(t.ctx, key, clientv3.WithRev(1<<40))
	t.ok(errors.As(err, &typed) && typed.Code() == codes.OutOfRange, "the error has a code: %v", err)
	get, err := t.client.Get(t.ctx, key)
	t.must(err, "get")
	t.ok(get.Kvs[0].ModRevision == revision && string(get.Kvs[0].Value) == "1", "refused requests leave nothing: %v", get.Kvs)
}

func paging(t *test) {
	const keys, limit = 95, 10
	for i := range keys {
		t.put(fmt.Sprintf("%03d", i), fmt.Sprint(i))
	}
	revision := int64(0)
	start, seen := t.prefix, 0
	for more := true; more; {
		page, err := t.client.Get(t.ctx, start, clientv3.WithRange(clientv3.GetPrefixRangeEnd(t.prefix)), clientv3.WithLimit(limit), clientv3.WithRev(revision))
		t.must(err, "page")
		if revision == 0 {
			revision = page.Header.Revision
		}
		t.ok(page.Count == int64(keys-seen) && page.More == (keys-seen > limit), "page: count %d, more %v after %d", page.Count, page.More, seen)
		for _, kv := range page.Kvs {
			t.ok(string(kv.Value) == fmt.Sprint(seen), "key %d is %s", seen, kv.Value)
			seen++
		}
		start = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		more = page.More
		t.put(fmt.Sprintf("%03d/later", seen), "not in the pages")
	}
	t.ok(seen == keys, "pages have %d keys", seen)
}

func rangeStream(t *test) {
	value := strings.Repeat("v", 1000)
	t.each(8, func(worker int) {
		for i := range 100 {
			_, err := t.client.Put(t.ctx, fmt.Sprintf("%s%d/%03d", t.prefix, worker, i), value)
			t.ok(err == nil, "put: %v", err)
		}
	})
	want, err := t.client.Get(t.ctx, t.prefix, clientv3.WithPrefix())
	t.must(err, "get")
	stream, err := t.client.GetStream(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithRev(want.Header.Revision))
	t.must(err, "stream")
	got, err := clientv3.GetStreamToGetResponse(stream)
	t.must(err, "stream")
	t.ok(got.Count == want.Count && len(got.Kvs) == len(want.Kvs), "stream: %d keys of %d", len(got.Kvs), len(want.Kvs))
	for i := range min(len(got.Kvs), len(want.Kvs)) {
		t.ok(string(got.Kvs[i].Key) == string(want.Kvs[i].Key) && got.Kvs[i].ModRevision == want.Kvs[i].ModRevision, "stream: key %d", i)
	}
	stream, err = t.client.GetStream(t.ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithRev(1<<40))
	if err == nil {
		_, err = clientv3.GetStreamToGetResponse(stream)
	}
	t.is(err, rpctypes.ErrFutureRev, "stream from the future")
}
