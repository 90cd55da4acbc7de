// The list of checks, and what each of them is given: parts of which every one is a line and a test.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// checkLimit bounds one check that names no limit of its own, requestLimit what is to be answered at once.
const (
	checkLimit   = 5 * time.Minute
	requestLimit = 30 * time.Second
)

// check is one subject.
type check struct {
	number int
	name   string
	run    func(t *test)
	limit  time.Duration // of time; 0 is checkLimit
	long   bool          // runs only when asked for by number
}

var checks = []check{
	{number: 1, name: "revisions", run: revisions},
	{number: 2, name: "conflicts", run: conflicts},
	{number: 3, name: "creation and deletion", run: creation},
	{number: 4, name: "patches", run: patches},
	{number: 5, name: "lists", run: lists},
	{number: 6, name: "pages", run: pages},
	{number: 7, name: "watches", run: watches},
	{number: 8, name: "generation, status and scale", run: generations},
	{number: 9, name: "sizes", run: sizes},
	{number: 10, name: "events that expire", run: expiry},
	{number: 11, name: "the cache's own comparison with the store", run: comparison, limit: 15 * time.Minute, long: true},
	{number: 12, name: "two apiservers", run: pair},
	{number: 13, name: "a store that is killed", run: kills, limit: 15 * time.Minute, long: true},
	{number: 14, name: "links to the store", run: links},
	{number: 15, name: "much that comes and goes", run: storms, limit: 30 * time.Minute, long: true},
	{number: 16, name: "filling the cache", run: fills, limit: 30 * time.Minute, long: true},
	{number: 17, name: "streamed lists", run: streams},
}

// test is what a check gets.
type test struct {
	ctx            context.Context
	world          *world
	random         *rand.Rand
	namespace      string // a name that no other check uses
	number         int
	scale          float64
	passed, failed int64
}

// part is one thing that holds or does not. What it needs and does not get ends it; the check goes on.
type part struct {
	ctx context.Context
	t   *test
	saw string
}

// errEnd ends a part.
var errEnd = errors.New("end of part")

// part runs one part and prints its line.
func (t *test) part(name string, run func(p *part)) {
	p := &part{ctx: t.ctx, t: t}
	began, verdict := time.Now(), "ok"
	func() {
		defer func() {
			if reason := recover(); reason == errEnd {
				verdict = "FAILED"
			} else if reason != nil {
				panic(reason)
			}
		}()
		run(p)
	}()
	if verdict == "ok" {
		t.passed++
	} else {
		t.failed++
	}
	fmt.Printf("%-6s %2d %5.1f s  %s: %s\n", verdict, t.number, time.Since(began).Seconds(), name, p.saw)
}

// sees notes what the line is to show.
func (p *part) sees(format string, args ...any) { p.saw = fmt.Sprintf(format, args...) }

// holds ends the part if something does not.
func (p *part) holds(holds bool, format string, args ...any) {
	if !holds {
		p.sees(format, args...)
		panic(errEnd)
	}
}

// must ends the part on an error.
func (p *part) must(err error, format string, args ...any) {
	p.holds(err == nil, "%s: %v", fmt.Sprintf(format, args...), err)
}

// await repeats until what it asks is true, at most limit.
func (p *part) await(limit time.Duration, what string, ask func() bool) {
	p.awaitEvery(20*time.Millisecond, limit, what, ask)
}

// awaitEvery is await for what is dear to ask.
func (p *part) awaitEvery(pause, limit time.Duration, what string, ask func() bool) {
	deadline := time.Now().Add(limit)
	for !ask() {
		p.holds(time.Now().Before(deadline) && p.ctx.Err() == nil, "%s: not within %v", what, limit)
		time.Sleep(pause)
	}
}

// scaled is a number of things, or the part of it that --scale asks for.
func (t *test) scaled(n int) int { return max(1, int(float64(n)*t.scale)) }

// each runs n functions at the same time, and returns the first error once all have returned.
func each(n int, run func(i int) error) error {
	failures := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { failures[i] = run(i) })
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// runCheck runs one check in a namespace of its own; if anything failed, it shows what the servers wrote last.
func runCheck(ctx context.Context, w *world, c check, seed uint64, scale float64) (passed, failed int64) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.limit, checkLimit))
	defer cancel()
	began := time.Now()
	t := &test{
		ctx: ctx, world: w, random: rand.New(rand.NewPCG(seed, uint64(c.number))),
		namespace: fmt.Sprintf("check-%d", c.number), number: c.number, scale: scale,
	}
	func() {
		defer func() {
			if reason := recover(); reason != nil && reason != errEnd {
				panic(reason)
			}
		}()
		c.run(t)
	}()
	fmt.Printf("       %2d %5.1f s  %s: %d ok, %d failed\n", c.number, time.Since(began).Seconds(), c.name, t.passed, t.failed)
	if t.failed > 0 {
		w.showLogs()
	}
	return t.passed, t.failed
}
