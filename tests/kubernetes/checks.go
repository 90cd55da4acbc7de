// The list of checks, and what each of them is given: parts of which every one is a line and a test.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// checkLimit bounds one check, requestLimit what is to be answered at once.
const (
	checkLimit   = 5 * time.Minute
	requestLimit = 30 * time.Second
)

// check is one subject.
type check struct {
	number int
	name   string
	run    func(t *test)
}

var checks = []check{
	{1, "revisions", revisions},
	{2, "conflicts", conflicts},
	{3, "creation and deletion", creation},
	{4, "patches", patches},
	{5, "lists", lists},
	{6, "pages", pages},
	{7, "watches", watches},
	{8, "generation, status and scale", generations},
	{9, "sizes", sizes},
}

// test is what a check gets.
type test struct {
	ctx            context.Context
	world          *world
	random         *rand.Rand
	namespace      string // a name that no other check uses
	number         int
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
	deadline := time.Now().Add(limit)
	for !ask() {
		p.holds(time.Now().Before(deadline) && p.ctx.Err() == nil, "%s: not within %v", what, limit)
		time.Sleep(20 * time.Millisecond)
	}
}

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
func runCheck(ctx context.Context, w *world, c check, seed uint64) (passed, failed int64) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	began := time.Now()
	t := &test{
		ctx: ctx, world: w, random: rand.New(rand.NewPCG(seed, uint64(c.number))),
		namespace: fmt.Sprintf("check-%d", c.number), number: c.number,
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
