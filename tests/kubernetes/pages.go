// Check 6: a list in pages is one state, and says how much is left of it.
package main

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	pagedObjects = 1000
	pageSize     = 137
)

func pages(t *test) {
	cached, uncached := t.both()
	path := t.configMaps()
	t.part("objects", func(p *part) {
		err := each(20, func(i int) error {
			for j := i; j < pagedObjects; j += 20 {
				got, err := cached.admin.send(p.ctx, "POST", path, configMap(fmt.Sprintf("page-%04d", j), nil))
				if err != nil || got.code != 201 {
					return fmt.Errorf("%v: %v", err, got)
				}
			}
			return nil
		})
		p.must(err, "creation")
		p.sees("%d", pagedObjects)
	})
	for _, server := range []*apiserver{cached, uncached} {
		t.part("pages show one state while writers run, "+server.name, func(p *part) {
			stop, writes := make(chan struct{}), atomic.Int64{}
			halt := sync.OnceFunc(func() { close(stop) })
			defer halt()
			writers := make(chan error, 1)
			go func() { writers <- p.disturb(stop, &writes, t.other(server).admin) }()
			turns, moved := 0, false
			for deadline := time.Now().Add(time.Minute); turns < 5 || !moved; turns++ {
				p.holds(time.Now().Before(deadline), "%d turns, %d writes", turns, writes.Load())
				before := writes.Load()
				p.turn(server)
				moved = moved || writes.Load() > before
			}
			halt()
			p.must(<-writers, "a writer")
			p.sees("%d times %d pages, %d writes meanwhile", turns, (pagedObjects+pageSize-1)/pageSize, writes.Load())
		})
	}
	expiredTokens(t, cached, uncached)
}

// disturb changes, deletes and creates objects among those that are paged, until it is told to stop.
func (p *part) disturb(stop <-chan struct{}, writes *atomic.Int64, client *api) error {
	return each(4, func(i int) error {
		for j := i; ; j = (j + 4) % pagedObjects {
			select {
			case <-stop:
				return nil
			default:
			}
			path := fmt.Sprintf("%s/page-%04d", p.t.configMaps(), j)
			steps := []func() (*answer, error){
				func() (*answer, error) {
					patch := object{"data": object{"at": strconv.FormatInt(writes.Load(), 10)}}
					return client.sendAs(p.ctx, "PATCH", path, patch, "application/merge-patch+json")
				},
				func() (*answer, error) { return client.send(p.ctx, "DELETE", path, nil) },
				func() (*answer, error) {
					return client.send(p.ctx, "POST", p.t.configMaps(), configMap(fmt.Sprintf("page-%04d", j), nil))
				},
			}
			for _, step := range steps {
				got, err := step()
				if err != nil || got.code >= 300 {
					return fmt.Errorf("%v: %v", err, got)
				}
				writes.Add(1)
			}
		}
	})
}

// turn goes through all pages, and compares them with the store's state at their revision.
func (p *part) turn(server *apiserver) {
	found, revision, next := map[string]int64{}, int64(0), ""
	for {
		list := p.get(server.admin, query(p.t.configMaps(), "limit", strconv.Itoa(pageSize), "continue", next))
		if revision == 0 {
			revision = list.revision()
		}
		p.holds(list.revision() == revision, "a page at %d after one at %d", list.revision(), revision)
		maps.Copy(found, state(list))
		next = list.text("metadata", "continue")
		left := p.storedAt(revision)
		for name := range found {
			delete(left, name)
		}
		remaining := max(list.number("metadata", "remainingItemCount"), 0)
		p.holds(remaining == int64(len(left)), "%d remain after %d, it says %d", len(left), len(found), remaining)
		if next == "" {
			break
		}
		p.holds(len(list.items()) == pageSize, "a page of %d", len(list.items()))
	}
	p.holds(maps.Equal(found, p.storedAt(revision)), "%d objects, which the store did not have at %d", len(found), revision)
}

// storedAt is the state of the check's ConfigMaps at a revision, from the store.
func (p *part) storedAt(revision int64) map[string]int64 {
	prefix := "/registry/configmaps/" + p.t.namespace + "/"
	client := p.t.world.shared.store.client
	got, err := client.Get(p.ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithKeysOnly())
	p.must(err, "the store at %d", revision)
	found := map[string]int64{}
	for _, kv := range got.Kvs {
		found[string(kv.Key[len(prefix):])] = kv.ModRevision
	}
	return found
}

// expiredTokens asks for the second page of a state that is gone.
func expiredTokens(t *test, servers ...*apiserver) {
	path, tokens := t.configMaps(), make([]string, len(servers))
	t.part("the store is compacted between two pages", func(p *part) {
		for i, server := range servers {
			list := p.get(server.admin, query(path, "limit", strconv.Itoa(pageSize)))
			tokens[i] = list.text("metadata", "continue")
			p.holds(tokens[i] != "", "no token with %d objects", len(list.items()))
		}
		p.create(servers[0].admin, path, configMap("zz-later", nil))
		now, err := t.world.shared.store.revision(p.ctx)
		p.must(err, "the revision")
		p.must(t.world.shared.store.compact(p.ctx, now), "compaction")
		p.sees("up to %d", now)
	})
	for i, server := range servers {
		t.part("an expired token gives one to go on with, "+server.name, func(p *part) {
			var got *answer
			p.await(time.Minute, "410 for an expired token", func() bool {
				got = p.send(server.admin, "GET", query(path, "limit", strconv.Itoa(pageSize), "continue", tokens[i]), nil)
				return got.code != 200
			})
			p.holds(got.is(410, "Expired"), "got %v", got)
			next := got.body.text("metadata", "continue")
			p.holds(next != "" && next != tokens[i], "the token is %q", next)
			list := p.get(server.admin, query(path, "continue", next))
			now := state(p.get(server.admin, path))
			for name := range now {
				if name < fmt.Sprintf("page-%04d", pageSize) {
					delete(now, name)
				}
			}
			p.holds(maps.Equal(state(list), now) && now["zz-later"] != 0, "%d objects, want %d", len(list.items()), len(now))
			p.sees("410 Expired, then %d objects at %d", len(now), list.revision())
		})
	}
}
