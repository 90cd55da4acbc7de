// Check 5: what a list shows, by the resourceVersion that it is asked at.
package main

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// state is what a list holds: each object's revision by its name.
func state(list object) map[string]int64 {
	found := map[string]int64{}
	for _, o := range list.items() {
		found[o.name()] = o.revision()
	}
	return found
}

// history is what a run of changes left: the state at each revision, and the revisions in order.
type history struct {
	at        map[int64]map[string]int64
	revisions []int64
}

// changes makes n random changes to ConfigMaps of the prefix, one at a time, through the clients by turns.
func (p *part) changes(prefix string, n int, clients ...*api) history {
	path := p.t.configMaps()
	h, now := history{at: map[int64]map[string]int64{}}, map[string]int64{}
	for i := range n {
		client, name := clients[i%len(clients)], fmt.Sprintf("%s-%02d", prefix, p.t.random.IntN(20))
		var revision int64
		switch _, exists := now[name]; {
		case !exists:
			revision = p.create(client, path, configMap(name, nil)).revision()
			now[name] = revision
		case p.t.random.IntN(3) == 0:
			p.expect(p.send(client, "DELETE", path+"/"+name, nil), 200, "DELETE")
			revision = p.deletedAt(name, now[name])
			delete(now, name)
		default:
			patch := object{"data": object{"i": strconv.Itoa(i)}}
			revision = p.expect(p.patch(client, path+"/"+name, "merge-patch+json", patch), 200, "PATCH").revision()
			now[name] = revision
		}
		h.at[revision] = maps.Clone(now)
		h.revisions = append(h.revisions, revision)
	}
	return h
}

func lists(t *test) {
	cached, uncached := t.both()
	maps := t.configMaps()
	var h history
	t.part("a list shows what was written before, wherever", func(p *part) {
		const metric, resource = "apiserver_watch_cache_consistent_read_total", `resource="configmaps"`
		before, err := cached.metric(p.ctx, metric, resource, `success="true"`, `fallback="false"`)
		p.must(err, "metrics")
		for i := range 100 {
			writer, reader := cached, uncached
			if i%2 == 0 {
				writer, reader = uncached, cached
			}
			o := p.create(writer.admin, maps, configMap(fmt.Sprintf("seen-%d", i), nil))
			list := p.get(reader.admin, maps)
			p.holds(state(list)[o.name()] == o.revision(), "%s has no %s of %d at %d",
				reader.name, o.name(), o.revision(), list.revision())
		}
		after, err := cached.metric(p.ctx, metric, resource, `success="true"`, `fallback="false"`)
		p.must(err, "metrics")
		p.holds(after > before, "the cache answered none of them")
		p.sees("100 writes, each in the next list of the other apiserver; its cache answered %.0f of 50", after-before)
	})
	t.part("a history of changes", func(p *part) {
		p.expect(p.send(cached.admin, "DELETE", maps, nil), 200, "DELETE of all")
		h = p.changes("h", 150, cached.admin, uncached.admin)
		p.sees("%d changes, from %d to %d", len(h.revisions), h.revisions[0], h.revisions[len(h.revisions)-1])
	})
	if t.failed > 0 {
		return
	}
	last := h.revisions[len(h.revisions)-1]
	for _, server := range []*apiserver{cached, uncached} {
		listsAt(t, server, h)
		t.part("too far in the future, "+server.name, func(p *part) {
			far := strconv.FormatInt(last+1_000_000, 10)
			for _, match := range []string{"Exact", "NotOlderThan"} {
				got := p.send(server.admin, "GET", query(maps, "resourceVersion", far, "resourceVersionMatch", match), nil)
				p.holds(got.is(504, "Timeout") && strings.Contains(got.body.text("message"), "Too large resource version"),
					"%s: got %v", match, got)
				p.sees("%v", got)
			}
		})
	}
	compactedLists(t, h, cached, uncached)
}

// listsAt asks for the states of the history.
func listsAt(t *test, server *apiserver, h history) {
	path := t.configMaps()
	last := h.revisions[len(h.revisions)-1]
	t.part("Exact gives the state of then, "+server.name, func(p *part) {
		for i, revision := range h.revisions {
			for _, limit := range []string{"0", "500"} {
				at := query(path, "resourceVersion", strconv.FormatInt(revision, 10), "resourceVersionMatch", "Exact", "limit", limit)
				list := p.get(server.admin, at)
				p.holds(maps.Equal(state(list), h.at[revision]) && list.revision() == revision,
					"change %d, at %d: got %v at %d, want %v", i, revision, state(list), list.revision(), h.at[revision])
			}
		}
		p.sees("%d states", len(h.revisions))
	})
	t.part("NotOlderThan gives one that is not older, "+server.name, func(p *part) {
		for _, revision := range []int64{h.revisions[0], last} {
			list := p.get(server.admin, query(path, "resourceVersion", strconv.FormatInt(revision, 10),
				"resourceVersionMatch", "NotOlderThan"))
			p.holds(list.revision() >= revision && maps.Equal(state(list), h.at[last]), "got %v at %d", state(list), list.revision())
		}
		// One that this apiserver has not heard of when it is asked.
		for i := range 50 {
			o := p.create(t.other(server).admin, path, configMap(fmt.Sprintf("new-%s-%d", server.name, i), nil))
			list := p.get(server.admin, query(path, "resourceVersion", strconv.FormatInt(o.revision(), 10),
				"resourceVersionMatch", "NotOlderThan"))
			p.holds(list.revision() >= o.revision() && state(list)[o.name()] == o.revision(),
				"%s is missing at %d", o.name(), list.revision())
			p.expect(p.send(server.admin, "DELETE", path+"/"+o.name(), nil), 200, "DELETE")
		}
		p.sees("asked for %d, %d and 50 new ones", h.revisions[0], last)
	})
	t.part("0 gives some state, unset and \"\" the newest, "+server.name, func(p *part) {
		p.await(time.Minute, "a list at 0 that shows the newest state", func() bool {
			list := p.get(server.admin, query(path, "resourceVersion", "0"))
			_, now := p.stored("none")
			p.holds(0 < list.revision() && list.revision() <= now, "at %d, the store is at %d", list.revision(), now)
			return maps.Equal(state(list), h.at[last])
		})
		list := p.get(server.admin, path)
		p.holds(maps.Equal(state(list), h.at[last]) && list.revision() >= last, "unset: %v at %d", state(list), list.revision())
		for _, wrong := range []string{"0", ""} {
			got := p.send(server.admin, "GET", query(path, "resourceVersion", wrong, "resourceVersionMatch", "Exact"), nil)
			p.holds(got.is(422, "Invalid"), "Exact at %q: got %v", wrong, got)
		}
		p.sees("%d objects at %d", len(list.items()), list.revision())
	})
}

// compactedLists asks for a state that is gone, of the caches too once they have heard of it.
func compactedLists(t *test, h history, servers ...*apiserver) {
	floor := h.revisions[len(h.revisions)/2]
	ask := func(p *part, server *apiserver, revision int64) *answer {
		at := query(t.configMaps(), "resourceVersion", strconv.FormatInt(revision, 10), "resourceVersionMatch", "Exact")
		return p.send(server.admin, "GET", at, nil)
	}
	t.part("the store is compacted", func(p *part) {
		p.must(t.world.shared.store.compact(p.ctx, floor), "compaction")
		p.sees("up to %d", floor)
	})
	for _, server := range servers {
		t.part("what is compacted has expired, "+server.name, func(p *part) {
			var got *answer
			p.await(time.Minute, "410 for what is compacted", func() bool {
				got = ask(p, server, h.revisions[0])
				return got.code != 200
			})
			p.holds(got.is(410, "Expired"), "got %v", got)
			for _, revision := range h.revisions {
				got := ask(p, server, revision)
				if revision < floor {
					p.holds(got.is(410, "Expired"), "at %d, compacted up to %d: got %v", revision, floor, got)
				} else {
					list := p.expect(got, 200, fmt.Sprintf("at %d, compacted up to %d", revision, floor))
					p.holds(maps.Equal(state(list), h.at[revision]), "at %d: got %v, want %v", revision, state(list), h.at[revision])
				}
			}
			p.sees("%v", got)
		})
	}
}

// other is the apiserver that this one is not.
func (t *test) other(server *apiserver) *apiserver {
	for _, other := range t.world.shared.servers {
		if other != server {
			return other
		}
	}
	return server
}
