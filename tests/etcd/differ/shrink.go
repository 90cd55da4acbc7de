// Shrinks a failing sequence: replays it on fresh servers with ever more of its requests left out.
package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"os"
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

// shrink removes parts, halves first, for as long as some difference stays. It returns the least that it found.
func shrink(ctx context.Context, steps []Step) ([]Step, *Difference) {
	deadline := time.Now().Add(shrinkLimit)
	best, n, err := replay(ctx, steps, nil)
	if err != nil || best == nil {
		return steps, nil
	}
	steps = steps[:n]
	for size := (len(steps) + 1) / 2; size > 0 && time.Now().Before(deadline); {
		removed := false
		for from := len(steps) - size; from > -size && time.Now().Before(deadline); from -= size {
			low, high := max(from, 0), min(max(from, 0)+size, len(steps))
			fewer := append(append([]Step(nil), steps[:low]...), steps[high:]...)
			difference, n, err := replay(ctx, fewer, nil)
			if err == nil && difference != nil {
				steps, best, removed = fewer[:n], difference, true
				from = min(from, len(steps))
			}
		}
		if size == 1 && !removed {
			break
		}
		if !removed || size > len(steps) {
			size = size / 2
		}
	}
	return steps, best
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
