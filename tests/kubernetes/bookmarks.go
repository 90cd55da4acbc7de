// Check 7, continued: bookmarks, and watches that begin with what there is.
package main

import (
	"fmt"
	"maps"
	"strconv"
	"time"
)

// bookmarks come before the end of a watch, move with writes to other resources, and can be resumed from.
func bookmarks(t *test, cached *apiserver) {
	path := t.configMaps()
	t.part("a bookmark comes, and is resumed from", func(p *part) {
		from := p.create(cached.admin, path, configMap("before", nil)).revision()
		w := p.watching(cached.admin, path, "resourceVersion", strconv.FormatInt(from, 10),
			"allowWatchBookmarks", "true", "timeoutSeconds", "8")
		// The write is to another resource; the list makes the cache ask how far the store is.
		other := p.create(cached.admin, "/api/v1/namespaces/"+t.namespace+"/secrets", object{"metadata": object{"name": "other"}})
		p.get(cached.admin, path)
		mark := p.next(w)
		p.holds(mark.Type == "BOOKMARK" && mark.Object.revision() >= other.revision(),
			"got %v, want at least %d", mark, other.revision())
		w.close()
		p.create(cached.admin, path, configMap("after", nil))
		w = p.watching(cached.admin, path, "resourceVersion", strconv.FormatInt(mark.Object.revision(), 10))
		e := p.next(w)
		w.close()
		p.holds(e.Type == "ADDED" && e.Object.name() == "after", "got %v", e)
		p.sees("at %d, after a write to another resource at %d", mark.Object.revision(), other.revision())
	})
}

// initialEvents begin with what there is; a bookmark with an annotation ends them.
func initialEvents(t *test, servers ...*apiserver) {
	path := t.configMaps()
	ask := []string{"sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true"}
	for _, server := range servers {
		t.part("initial events end with a bookmark, "+server.name, func(p *part) {
			last := p.create(t.other(server).admin, path, configMap("initial-"+server.name, nil))
			w := p.watching(server.admin, path, ask...)
			seen, revision := p.initial(w)
			p.holds(revision >= last.revision() && maps.Equal(seen, p.storedAt(revision)),
				"%d objects at %d, which the store did not have", len(seen), revision)
			next := p.put(server.admin, path+"/"+last.name(), last.copied().set("1", "data", "a"))
			e := p.next(w)
			w.close()
			p.holds(e.Type == "MODIFIED" && e.Object.revision() == next.revision(), "after the bookmark: got %v", e)
			p.sees("%d objects at %d", len(seen), revision)
		})
		t.part("initial events of an empty resource end, "+server.name, func(p *part) {
			last := p.create(t.other(server).admin, path, configMap("empty-"+server.name, nil))
			began := time.Now()
			w := p.watching(server.admin, "/api/v1/podtemplates", ask...)
			seen, revision := p.initial(w)
			w.close()
			p.holds(len(seen) == 0 && revision >= last.revision(),
				"%d objects at %d, want at least %d", len(seen), revision, last.revision())
			p.sees("at %d, after %v", revision, time.Since(began).Round(time.Millisecond))
		})
	}
}

// initial reads a watch up to the bookmark that ends the initial events, and gives the objects and the revision.
func (p *part) initial(w *watcher) (map[string]int64, int64) {
	seen := map[string]int64{}
	for {
		switch e := p.next(w); {
		case e.Type == "ADDED":
			p.holds(seen[e.Object.name()] == 0, "%s comes twice", e.Object.name())
			seen[e.Object.name()] = e.Object.revision()
		case e.Type == "BOOKMARK" && e.Object.text("metadata", "annotations", initialEnd) == "true":
			return seen, e.Object.revision()
		default:
			p.holds(false, "%s", fmt.Sprintf("among the initial events: %v", e))
		}
	}
}
