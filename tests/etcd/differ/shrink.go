// Shrinks a failing sequence: replays it on fresh servers with ever more of its requests left out.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// shrinkLimit bounds the whole search.
const shrinkLimit = 120 * time.Second

// replay runs steps on fresh servers and gives the difference, if there is one.
func replay(ctx context.Context, steps []Step, falsify *Falsifier) (*Difference, int, error) {
	pair, err := newPair(ctx, newCounts(), falsify)
	if err != nil {
		return nil, 0, err
	}
	defer pair.close()
	for i, step := range steps {
		if err := pair.run(ctx, step); err != nil {
			return asDifference(err, i+1)
		}
	}
	return asDifference(pair.sync(ctx), len(steps))
}

func asDifference(err error, steps int) (*Difference, int, error) {
	var difference *Difference
	if errors.As(err, &difference) {
		return difference, steps, nil
	}
	return nil, steps, err
}

// shrink removes parts, halves first, for as long as a difference of its kind stays. It returns the least that it found.
func shrink(ctx context.Context, steps []Step) ([]Step, *Difference) {
	deadline := time.Now().Add(shrinkLimit)
	best, n, err := replay(ctx, steps, nil)
	if err != nil || best == nil {
		return steps, nil
	}
	steps = steps[:n]
	// try keeps a shorter sequence if the difference is left in it.
	try := func(fewer []Step) bool {
		if len(fewer) == len(steps) || !time.Now().Before(deadline) {
			return false
		}
		difference, n, err := replay(ctx, fewer, nil)
		if err != nil || difference == nil || difference.sort() != best.sort() {
			return false
		}
		steps, best = fewer[:n], difference
		return true
	}
	// First all requests of one method at a time: most have nothing to do with it.
	tried := map[string]bool{}
	for _, step := range slices.Clone(steps) {
		kind := step.Kind + step.Method
		if last := len(steps) - 1; last > 0 && !tried[kind] {
			tried[kind] = true
			try(append(slices.DeleteFunc(slices.Clone(steps[:last]), func(s Step) bool { return s.Kind+s.Method == kind }),
				steps[last]))
		}
	}
	for size := (len(steps) + 1) / 2; size > 0 && time.Now().Before(deadline); {
		removed := false
		for from := len(steps) - size; from > -size; from -= size {
			low, high := max(from, 0), min(from+size, len(steps))
			if low < high && try(append(slices.Clone(steps[:low]), steps[high:]...)) {
				removed = true
			}
		}
		if !removed || size > len(steps) {
			size /= 2
		}
	}
	return steps, best
}

// sort tells one kind of difference from others, so that a shrunk sequence still shows the one that was found.
func (d *Difference) sort() string {
	what, _, _ := strings.Cut(d.What, ":")
	first, _, _ := strings.Cut(what, " ")
	return d.Step.Kind + d.Step.Method + strings.TrimRight(first, "0123456789[]")
}

// report writes the sequence to a file, shrinks it, and prints what a person needs to go on.
func report(ctx context.Context, seed int64, history []Step, found *Difference) {
	fmt.Printf("\nDIFFERENCE (seed %d)\n%v\n", seed, found)
	path := filepath.Join(os.TempDir(), fmt.Sprintf("differ-%d-%d.json", seed, os.Getpid()))
	save := func(steps []Step) {
		if err := (&Sequence{Seed: seed, Steps: steps}).write(path); err != nil {
			fmt.Println(err)
		}
	}
	save(history)
	fmt.Printf("%d steps since the servers were empty are in %s; shrinking them for at most %v\n",
		len(history), path, shrinkLimit)
	steps, least := shrink(ctx, history)
	if least == nil {
		fmt.Println("replayed on fresh servers, it does not come again: it depends on time")
	} else {
		save(steps)
		fmt.Printf("the least that still differs, %d steps:\n", len(steps))
		for _, step := range steps {
			fmt.Printf("  %v\n", step)
		}
		fmt.Printf("%v\n", least)
	}
	fmt.Printf("replay: tests/etcd/run differ -replay %s\n", path)
}
