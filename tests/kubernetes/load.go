// Writers that keep account: what was acknowledged has to be there, what was not may be there or not, and nothing else.
package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// version is a state of an object: its revision, and the value that its writer gave it.
type version struct {
	revision int64
	value    string
}

// valued is an object of any kind with a value.
func valued(name, value string) object {
	return object{"metadata": object{"name": name, "annotations": object{"value": value}}}
}

func versionOf(o object) version {
	return version{o.revision(), o.text("metadata", "annotations", "value")}
}

// listed gives the objects of a list by name, and its revision.
func (p *part) listed(a *api, path string, parameters ...string) (map[string]version, int64) {
	list := p.get(a, query(path, parameters...))
	all := map[string]version{}
	for _, o := range list.items() {
		all[o.name()] = versionOf(o)
	}
	return all, list.revision()
}

// load is a number of writers, each with objects of its own.
type load struct {
	path          string
	made          func(name, value string) object
	pause         time.Duration // between two requests of a writer
	acked         atomic.Int64  // the highest revision that was acknowledged
	acks, unknown atomic.Int64
	writers       []*writer
	stopping      atomic.Bool
	outcome       chan error
}

type writer struct {
	load   *load
	client *api
	random *rand.Rand
	names  []string
	has    map[string]version
}

// load starts writers, which take turns with the clients.
func (p *part) load(path string, writers, objects int, pause time.Duration, clients ...*api) *load {
	return p.loadOf(path, valued, writers, objects, pause, clients...)
}

// loadOf is load for objects that are made in another way than valued, and have the value where that puts it.
func (p *part) loadOf(
	path string, made func(name, value string) object, writers, objects int, pause time.Duration, clients ...*api,
) *load {
	l := &load{path: path, made: made, pause: pause, outcome: make(chan error, 1)}
	seed := p.t.random.Uint64()
	for i := range writers {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		w := &writer{load: l, client: clients[i%len(clients)], random: random, has: map[string]version{}}
		for j := range objects {
			w.names = append(w.names, fmt.Sprintf("w%02d-%03d", i, j))
		}
		l.writers = append(l.writers, w)
	}
	go func() {
		l.outcome <- each(writers, func(i int) error {
			for !l.stopping.Load() {
				if err := l.writers[i].step(p.ctx); err != nil {
					return err
				}
				time.Sleep(pause)
			}
			return nil
		})
	}()
	return l
}

// goesOn waits for more acknowledgements.
func (l *load) goesOn(p *part, acks int64) {
	want := l.acks.Load() + acks
	p.await(time.Minute, fmt.Sprintf("%d more acknowledged writes", acks), func() bool { return l.acks.Load() >= want })
}

// end stops the writers and gives the objects that have to be there.
func (l *load) end(p *part) map[string]version {
	l.stopping.Store(true)
	p.must(<-l.outcome, "a writer")
	all := map[string]version{}
	for _, w := range l.writers {
		maps.Copy(all, w.has)
	}
	return all
}

// step creates, changes or deletes one object.
func (w *writer) step(ctx context.Context) error {
	name, value := w.names[w.random.IntN(len(w.names))], strconv.FormatUint(w.random.Uint64(), 36)
	last, exists := w.has[name]
	// Whatever this becomes comes after all that has been acknowledged by now.
	floor := w.load.acked.Load()
	method, target := "PUT", w.load.path+"/"+name
	var body any = w.load.made(name, value).set(strconv.FormatInt(last.revision, 10), "metadata", "resourceVersion")
	switch {
	case !exists:
		method, target, body = "POST", w.load.path, w.load.made(name, value)
	case w.random.IntN(4) == 0:
		method, body = "DELETE", nil
	}
	got, err := w.client.send(ctx, method, target, body)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || got.code >= 500 || got.code == http.StatusTooManyRequests:
		w.load.unknown.Add(1)
		return w.settle(ctx, name, method, value, floor)
	case got.code >= 300:
		return fmt.Errorf("%s %s, last at %d: %v", method, target, last.revision, got)
	case method == "DELETE":
		delete(w.has, name)
	default:
		if err := w.wrote(name, versionOf(got.body), value, floor); err != nil {
			return err
		}
	}
	w.load.acks.Add(1)
	return nil
}

// wrote notes a state, which has to be the value written and later than what was acknowledged before.
func (w *writer) wrote(name string, now version, value string, floor int64) error {
	if now.value != value || now.revision <= floor {
		return fmt.Errorf("%s: %q at %d, want %q after %d", name, now.value, now.revision, value, floor)
	}
	w.has[name] = now
	for {
		highest := w.load.acked.Load()
		if highest >= now.revision || w.load.acked.CompareAndSwap(highest, now.revision) {
			return nil
		}
	}
}

// settle asks what became of a request whose outcome is unknown: it was carried out, or all is as before.
func (w *writer) settle(ctx context.Context, name, method, value string, floor int64) error {
	last, exists := w.has[name]
	for ctx.Err() == nil {
		got, err := w.client.send(ctx, "GET", w.load.path+"/"+name, nil)
		switch {
		case err == nil && got.code == http.StatusNotFound:
			if exists && method != "DELETE" {
				return fmt.Errorf("%s was acknowledged at %d and is lost", name, last.revision)
			}
			delete(w.has, name)
			return nil
		case err == nil && got.code == http.StatusOK:
			now := versionOf(got.body)
			if exists && now == last {
				return nil
			}
			if method == "DELETE" {
				return fmt.Errorf("%s was at %d, and after a deletion at %d", name, last.revision, now.revision)
			}
			return w.wrote(name, now, value, floor)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}
