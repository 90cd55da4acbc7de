// A watch that goes on as a controller's does: resumed from where it was, begun anew with a list where that is too old.
package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// follower holds the objects as the events show them.
type follower struct {
	client   *api
	path     string
	state    map[string]version
	at       int64 // the revision of the state
	events   int
	resumed  int
	relisted int
}

// follow starts one that ends once it sees the object of this name.
func (p *part) follow(client *api, path, last string) (*follower, chan error) {
	f, ended := &follower{client: client, path: path}, make(chan error, 1)
	f.state, f.at = p.listed(client, path)
	go func() { ended <- f.run(p.ctx, last) }()
	return f, ended
}

func (f *follower) run(ctx context.Context, last string) error {
	for ctx.Err() == nil {
		w, err := f.client.watch(ctx, f.path, "resourceVersion", strconv.FormatInt(f.at, 10), "allowWatchBookmarks", "true")
		for err == nil {
			var e event
			if e, err = w.next(); err == nil {
				if fault := f.take(e); fault != nil {
					w.close()
					return fmt.Errorf("%s: %w", f.client.name, fault)
				}
			}
			if _, seen := f.state[last]; seen {
				w.close()
				return nil
			}
		}
		if w != nil {
			w.close()
		}
		f.resumed++
		if got, is := refused(err); is && got.code == 410 {
			f.relist(ctx)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}

// take carries one event out. Events are later than the state, and of what they say.
func (f *follower) take(e event) error {
	name, now := e.Object.name(), versionOf(e.Object)
	was, exists := f.state[name]
	switch {
	case e.Type == "BOOKMARK":
		if now.revision < f.at {
			return fmt.Errorf("a bookmark at %d, after %d", now.revision, f.at)
		}
		f.at = now.revision
		return nil
	case now.revision <= f.at:
		return fmt.Errorf("%s of %s at %d, after %d", e.Type, name, now.revision, f.at)
	case exists == (e.Type == "ADDED"):
		return fmt.Errorf("%s of %s at %d, which was there: %v", e.Type, name, now.revision, exists)
	case e.Type == "DELETED":
		if was.value != now.value {
			return fmt.Errorf("%s is deleted with %q, and was %q", name, now.value, was.value)
		}
		delete(f.state, name)
	default:
		f.state[name] = now
	}
	f.events, f.at = f.events+1, now.revision
	return nil
}

// relist begins anew; without an answer, the next watch is refused again.
func (f *follower) relist(ctx context.Context) {
	got, err := f.client.send(ctx, "GET", f.path, nil)
	if err != nil || got.code != 200 {
		return
	}
	f.relisted, f.at, f.state = f.relisted+1, got.body.revision(), map[string]version{}
	for _, o := range got.body.items() {
		f.state[o.name()] = versionOf(o)
	}
}
