// Watches through the Kubernetes API: a stream of JSON objects.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// watcher is a stream of events. Ending its context ends it.
type watcher struct {
	body    io.ReadCloser
	decoder *json.Decoder
	cancel  func()
}

// event is one change, a bookmark or an error.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// refusal is what a watch gets in place of a stream, or within it.
type refusal struct{ answer }

func (r *refusal) Error() string { return r.answer.String() }

// initialEnd is the annotation of the bookmark that ends the initial events.
const initialEnd = "k8s.io/initial-events-end"

// watch begins a watch; parameters are names and values by turns.
func (a *api) watch(ctx context.Context, path string, parameters ...string) (*watcher, error) {
	response, err := a.request(ctx, "GET", query(path, append(parameters, "watch", "true")...), nil, "")
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		got, err := read(response)
		if err != nil {
			return nil, err
		}
		return nil, &refusal{*got}
	}
	return &watcher{response.Body, json.NewDecoder(response.Body), func() {}}, nil
}

// next gives the next event, io.EOF at the end, and a refusal for an error within the stream.
func (w *watcher) next() (event, error) {
	var e event
	if err := w.decoder.Decode(&e); err != nil {
		return e, err
	}
	if e.Type == "ERROR" {
		return e, &refusal{answer{code: int(e.Object.number("code")), body: e.Object}}
	}
	return e, nil
}

func (w *watcher) close() {
	_ = w.body.Close()
	w.cancel()
}

// refused is the answer in an error, if it is one.
func refused(err error) (*answer, bool) {
	var r *refusal
	if errors.As(err, &r) {
		return &r.answer, true
	}
	return nil, false
}

// first gives the outcome of a watch's beginning: the refusal of the request, or of what comes first.
func (p *part) first(a *api, path string, parameters ...string) *answer {
	ctx, cancel := context.WithTimeout(p.ctx, requestLimit)
	defer cancel()
	w, err := a.watch(ctx, path, parameters...)
	if err == nil {
		defer w.close()
		var e event
		if e, err = w.next(); err == nil {
			err = fmt.Errorf("an event %s of %s", e.Type, e.Object.name())
		}
	}
	got, ok := refused(err)
	p.holds(ok, "want a refusal, got %v", err)
	return got
}

// watching begins a watch for what is to come at once.
func (p *part) watching(a *api, path string, parameters ...string) *watcher {
	ctx, cancel := context.WithTimeout(p.ctx, requestLimit)
	w, err := a.watch(ctx, path, parameters...)
	if err == nil {
		w.cancel = cancel
	} else {
		cancel()
	}
	p.must(err, "a watch on %s of %s", path, a.name)
	return w
}

// next gives the next event of a watch, and ends the part if there is none.
func (p *part) next(w *watcher) event {
	e, err := w.next()
	p.must(err, "the next event")
	return e
}
