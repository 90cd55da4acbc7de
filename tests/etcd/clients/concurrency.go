// This file holds the scenarios of the client library's locks, elections, queues and software transactions.
package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

func (t *test) session(options ...concurrency.SessionOption) *concurrency.Session {
	session, err := concurrency.NewSession(t.client, append([]concurrency.SessionOption{concurrency.WithTTL(30), concurrency.WithContext(t.ctx)}, options...)...)
	t.must(err, "session")
	return session
}

func mutex(t *test) {
	const contenders, rounds = 8, 5
	var inside atomic.Int64
	t.each(contenders, func(int) {
		session := t.session()
		defer session.Close()
		lock := concurrency.NewMutex(session, t.prefix+"lock")
		for range rounds {
			t.must(lock.Lock(t.ctx), "lock")
			t.ok(inside.Add(1) == 1, "one holder at a time")
			counter, err := t.client.Get(t.ctx, t.prefix+"counter")
			t.must(err, "get")
			n := 0
			if counter.Count > 0 {
				n, _ = strconv.Atoi(string(counter.Kvs[0].Value))
			}
			done, err := t.client.Txn(t.ctx).If(lock.IsOwner()).Then(clientv3.OpPut(t.prefix+"counter", strconv.Itoa(n+1))).Commit()
			t.must(err, "txn")
			t.ok(done.Succeeded, "the holder owns the lock")
			inside.Add(-1)
			t.must(lock.Unlock(t.ctx), "unlock")
		}
	})
	counter, err := t.client.Get(t.ctx, t.prefix+"counter")
	t.must(err, "get")
	t.ok(string(counter.Kvs[0].Value) == strconv.Itoa(contenders*rounds), "counter: %s", counter.Kvs[0].Value)

	holder, other := t.session(), t.session()
	lock, second := concurrency.NewMutex(holder, t.prefix+"try"), concurrency.NewMutex(other, t.prefix+"try")
	t.must(lock.TryLock(t.ctx), "try lock")
	t.is(second.TryLock(t.ctx), concurrency.ErrLocked, "try lock of a held lock")
	t.must(holder.Close(), "close")
	t.must(second.Lock(t.ctx), "a closed session gives its lock up")
	t.must(other.Close(), "close")
}

func rwMutex(t *test) {
	var readers, writers, most atomic.Int64
	t.each(6, func(i int) {
		session := t.session()
		defer session.Close()
		lock := recipe.NewRWMutex(session, t.prefix+"rw")
		for range 4 {
			if i < 2 {
				t.must(lock.Lock(), "lock")
				t.ok(writers.Add(1) == 1 && readers.Load() == 0, "a writer is alone")
				writers.Add(-1)
				t.must(lock.Unlock(), "unlock")
			} else {
				t.must(lock.RLock(), "read lock")
				most.Store(max(most.Load(), readers.Add(1)))
				t.ok(writers.Load() == 0, "no reader beside a writer")
				readers.Add(-1)
				t.must(lock.RUnlock(), "read unlock")
			}
		}
	})
	t.ok(most.Load() >= 1, "readers got in")
}

func queues(t *test) {
	queue, ranked := recipe.NewQueue(t.client, t.prefix+"q"), recipe.NewPriorityQueue(t.client, t.prefix+"p")
	for i := range 5 {
		t.must(queue.Enqueue(fmt.Sprint(i)), "enqueue")
		t.must(ranked.Enqueue(fmt.Sprint(i), uint16(9-i)), "enqueue by rank")
	}
	for i := range 5 {
		got, err := queue.Dequeue()
		t.must(err, "dequeue")
		t.ok(got == fmt.Sprint(i), "first in, first out: %s is number %d", got, i)
		got, err = ranked.Dequeue()
		t.must(err, "dequeue by rank")
		t.ok(got == fmt.Sprint(4-i), "lowest rank first: %s is number %d", got, i)
	}
	t.each(2, func(i int) {
		if i == 0 {
			got, err := queue.Dequeue()
			t.ok(err == nil && got == "late", "an empty queue waits: %s, %v", got, err)
		} else {
			t.must(queue.Enqueue("late"), "enqueue")
		}
	})
}

func barriers(t *test) {
	barrier := recipe.NewBarrier(t.client, t.prefix+"barrier")
	t.must(barrier.Hold(), "hold")
	t.ok(barrier.Hold() != nil, "a held barrier cannot be held again")
	var released atomic.Bool
	t.each(4, func(i int) {
		if i == 0 {
			released.Store(true)
			t.must(barrier.Release(), "release")
			return
		}
		t.must(recipe.NewBarrier(t.client, t.prefix+"barrier").Wait(), "wait")
		t.ok(released.Load(), "the wait ends after the release")
	})
	var entered, left atomic.Int64
	t.each(4, func(int) {
		session := t.session()
		defer session.Close()
		double := recipe.NewDoubleBarrier(session, t.prefix+"double", 4)
		entered.Add(1)
		t.must(double.Enter(), "enter")
		t.ok(entered.Load() == 4, "all come in together")
		left.Add(1)
		t.must(double.Leave(), "leave")
		t.ok(left.Load() == 4, "all leave together")
	})
}

func election(t *test) {
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	watcher := t.session()
	seen := concurrency.NewElection(watcher, t.prefix+"e").Observe(ctx)
	_, err := concurrency.NewElection(watcher, t.prefix+"e").Leader(t.ctx)
	t.is(err, concurrency.ErrElectionNoLeader, "no leader yet")
	for i := range 3 {
		session := t.session()
		one := concurrency.NewElection(session, t.prefix+"e")
		name := fmt.Sprint("candidate ", i)
		t.must(one.Campaign(t.ctx, name), "campaign")
		observed := <-seen
		t.ok(string(observed.Kvs[0].Value) == name, "observed: %v", observed)
		t.must(one.Proclaim(t.ctx, name+" again"), "proclaim")
		observed = <-seen
		t.ok(string(observed.Kvs[0].Value) == name+" again" && observed.Kvs[0].CreateRevision == one.Rev(), "observed: %v", observed)
		leader, err := one.Leader(t.ctx)
		t.must(err, "leader")
		t.ok(string(leader.Kvs[0].Key) == one.Key(), "leader: %v", leader)
		t.must(one.Resign(t.ctx), "resign")
		t.is(one.Proclaim(t.ctx, "x"), concurrency.ErrElectionNotLeader, "proclaim after resigning")
		t.must(session.Close(), "close")
	}
	var leaders atomic.Int64
	t.each(5, func(i int) {
		session := t.session()
		defer session.Close()
		one := concurrency.NewElection(session, t.prefix+"many")
		t.must(one.Campaign(t.ctx, fmt.Sprint(i)), "campaign")
		t.ok(leaders.Add(1) == 1, "one leader at a time")
		leaders.Add(-1)
		t.must(one.Resign(t.ctx), "resign")
	})
}

func sessionLost(t *test) {
	// Without keep-alive the lease ends by itself, and with it the lock.
	session := t.session(concurrency.WithTTL(2))
	lock := concurrency.NewMutex(session, t.prefix+"lock")
	t.must(lock.Lock(t.ctx), "lock")
	session.Orphan()
	other := t.session()
	next := concurrency.NewMutex(other, t.prefix+"lock")
	t.must(next.Lock(t.ctx), "the lock of a lost session is free")
	owner, err := t.client.Txn(t.ctx).If(lock.IsOwner()).Commit()
	t.must(err, "txn")
	t.ok(!owner.Succeeded, "the lost session does not own it")
	// A revoked lease ends the session.
	_, err = t.client.Revoke(t.ctx, other.Lease())
	t.must(err, "revoke")
	<-other.Done()
	t.ok(t.ctx.Err() == nil, "the session knows")
}

func stm(t *test) {
	const accounts, total = 5, 500
	for i := range accounts {
		t.put(fmt.Sprint(i), strconv.Itoa(total/accounts))
	}
	sum := func() (sum int) {
		all, err := t.client.Get(t.ctx, t.prefix, clientv3.WithPrefix())
		t.must(err, "get")
		for _, kv := range all.Kvs {
			n, err := strconv.Atoi(string(kv.Value))
			t.must(err, "number")
			sum += n
		}
		return sum
	}
	for _, level := range []concurrency.Isolation{concurrency.SerializableSnapshot, concurrency.Serializable, concurrency.RepeatableReads, concurrency.ReadCommitted} {
		workers := 4
		if level == concurrency.ReadCommitted {
			workers = 1 // Promises nothing to those who read before they write.
		}
		t.each(workers, func(worker int) {
			for i := range 6 {
				from, to := t.prefix+fmt.Sprint((worker+i)%accounts), t.prefix+fmt.Sprint((worker*2+i+1)%accounts)
				if from == to {
					continue
				}
				_, err := concurrency.NewSTM(t.client, func(s concurrency.STM) error {
					a, _ := strconv.Atoi(s.Get(from))
					b, _ := strconv.Atoi(s.Get(to))
					s.Put(from, strconv.Itoa(a-1-i))
					s.Put(to, strconv.Itoa(b+1+i))
					return nil
				}, concurrency.WithIsolation(level), concurrency.WithAbortContext(t.ctx))
				t.ok(err == nil, "transfer: %v", err)
			}
		})
		t.ok(sum() == total, "level %d: the sum is %d", level, sum())
	}
}
