// Runs one step on both servers at the same time and compares the answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// callLimit bounds one call; a call that takes longer is a difference by its code.
const callLimit = 30 * time.Second

// Answer is what one server gave for one request.
type Answer struct {
	Code  codes.Code
	Text  string
	Reply proto.Message // nil with an error
}

func (a Answer) String() string {
	if a.Code != codes.OK {
		return fmt.Sprintf("%v: %q", a.Code, a.Text)
	}
	return "{ " + brief(readable(a.Reply)) + " }"
}

func answer(reply proto.Message, err error) Answer {
	if err != nil {
		s := status.Convert(err)
		return Answer{Code: s.Code(), Text: s.Message()}
	}
	return Answer{Reply: reply}
}

// Difference is what a run is about to find.
type Difference struct {
	Step    Step
	What    string
	Answers [2]string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("%v\n  differs in %s\n  etcd:      %s\n  sternpost: %s",
		d.Step, d.What, d.Answers[etcd], d.Answers[sternpost])
}

// run executes a step. The error is a *Difference, or says that the test itself could not go on.
func (p *Pair) run(ctx context.Context, step Step) error {
	err := p.dispatch(ctx, step)
	var difference *Difference
	if errors.As(err, &difference) && difference.Step.Kind == "" {
		difference.Step = step
	}
	if err == nil {
		return nil
	}
	if end := p.ended(); end != nil {
		return &Difference{Step: step, What: end.Error() + "\n  " + err.Error()}
	}
	return err
}

func (p *Pair) dispatch(ctx context.Context, step Step) error {
	switch step.Kind {
	case kindCall:
		return p.call(ctx, step)
	case kindKeepAlive:
		return p.exchange(step, p.ask(ctx, step, keepAlive))
	case kindRaw:
		return p.raw(ctx, step)
	case kindOpen:
		return p.open(ctx, step.Stream)
	case kindWatch:
		return p.watchRequest(ctx, step)
	case kindClose:
		if stream := p.streams[step.Stream]; stream != nil {
			if err := p.sync(ctx); err != nil {
				return err
			}
			stream.close()
			delete(p.streams, step.Stream)
		}
		return nil
	case kindRestart:
		return p.restartAndCompare(ctx, step)
	case kindExpire:
		return p.expire(ctx, step)
	case kindBrief:
		return p.briefLease(ctx, step)
	}
	return fmt.Errorf("unknown kind of step %q", step.Kind)
}

type sender func(ctx context.Context, conn *grpc.ClientConn, method string, request proto.Message) (proto.Message, error)

// ask sends one request to both.
func (p *Pair) ask(ctx context.Context, step Step, send sender) [2]Answer {
	var answers [2]Answer
	both(func(side int) {
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		answers[side] = answer(send(ctx, p.conns[side], step.Method, p.resolve(side, step.Message)))
	})
	return answers
}

func unary(ctx context.Context, conn *grpc.ClientConn, method string, request proto.Message) (proto.Message, error) {
	_, reply, err := types(method)
	if err != nil {
		return nil, err
	}
	return reply, conn.Invoke(ctx, method, request, reply)
}

// rangeStream puts the parts together, and checks the rules of a part: only the last has a header and a count.
func rangeStream(ctx context.Context, conn *grpc.ClientConn, _ string, request proto.Message) (proto.Message, error) {
	stream, err := pb.NewKVClient(conn).RangeStream(ctx, request.(*pb.RangeRequest))
	if err != nil {
		return nil, err
	}
	whole, last := &pb.RangeResponse{}, false
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			if !last {
				return nil, status.Error(codes.DataLoss, "judge: the stream had no last part with a header")
			}
			return &pb.RangeStreamResponse{RangeResponse: whole}, nil
		}
		if err != nil {
			return nil, err
		}
		r := part.RangeResponse
		if last || r == nil || (r.Header == nil && (r.Count != 0 || r.More || len(r.Kvs) == 0)) {
			return nil, status.Error(codes.DataLoss, "judge: a part of the stream is out of order: "+brief(readable(part)))
		}
		last = r.Header != nil
		kvs := append(whole.Kvs, r.Kvs...)
		whole = proto.Clone(&pb.RangeResponse{Header: r.Header, More: r.More, Count: r.Count}).(*pb.RangeResponse)
		whole.Kvs = kvs
	}
}

func keepAlive(ctx context.Context, conn *grpc.ClientConn, _ string, request proto.Message) (proto.Message, error) {
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(request.(*pb.LeaseKeepAliveRequest)); err != nil && err != io.EOF {
		return nil, err
	}
	reply, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	if _, err := stream.Recv(); err != io.EOF {
		return nil, fmt.Errorf("after the end of the requests: %w", err)
	}
	return reply, nil
}

// call runs a unary call or RangeStream, apart from what the two are known not to agree on.
func (p *Pair) call(ctx context.Context, step Step) error {
	send := unary
	switch request := step.Message.(type) {
	case *pb.RangeRequest:
		if step.Method == methodRangeStream {
			send = rangeStream
		}
	case *pb.CompactionRequest:
		// Every event is delivered first: otherwise it depends on time which watch is overtaken.
		if err := p.catchUp(ctx); err != nil {
			return err
		}
		target := p.resolve(etcd, request).(*pb.CompactionRequest).Revision
		// differences.md, "several changes of a key in the compacted revision".
		for p.twice[target] {
			target--
		}
		step.Message = &pb.CompactionRequest{Revision: target, Physical: request.Physical}
	case *pb.HashKVRequest:
		target := p.resolve(etcd, request).(*pb.HashKVRequest).Revision
		// differences.md, "HashKV": etcd remembers the hash of a compacted revision, and takes 0 for one as well.
		if p.everyC[target] || target == 0 && p.everyC[p.now] || p.unhashable {
			return nil
		}
		// Where no key is left, etcd hashes what the last compaction has not removed yet: let it end.
		if p.sweeping {
			again := Step{Kind: kindCall, Method: methodCompact, Message: &pb.CompactionRequest{Revision: p.compacted, Physical: true}}
			if err := p.exchange(again, p.ask(ctx, again, unary)); err != nil {
				return err
			}
			p.sweeping = false
		}
	}
	return p.exchange(step, p.ask(ctx, step, send))
}

// exchange counts, falsifies, compares, and learns from a pair of answers.
func (p *Pair) exchange(step Step, answers [2]Answer) error {
	p.counts.requests.Add(1)
	resolved := step.Message
	if resolved != nil {
		resolved = p.resolve(etcd, step.Message)
	}
	p.counts.seen(p, step, resolved, answers[etcd])
	if p.falsify != nil {
		p.falsify.answer(&answers[sternpost])
	}
	p.learn(step, resolved, answers)
	return p.compare(step, resolved, answers)
}

// learn takes from etcd's answer what later references mean.
func (p *Pair) learn(step Step, resolved proto.Message, answers [2]Answer) {
	if answers[etcd].Code != codes.OK {
		return
	}
	if header, ok := answers[etcd].Reply.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		p.now = max(p.now, header.GetHeader().GetRevision())
	}
	p.unhashable = p.unhashable || p.usesChosen(resolved)
	switch request := resolved.(type) {
	case *pb.CompactionRequest:
		p.compacted = request.Revision
		p.sweeping = !request.Physical
		p.everyC[request.Revision] = true
	case *pb.TxnRequest:
		if changesTwice(request) {
			p.twice[p.now] = true
		}
	case *pb.LeaseGrantRequest:
		for side := range 2 {
			reply, ok := answers[side].Reply.(*pb.LeaseGrantResponse)
			if !ok {
				continue
			}
			p.leases[side][step.ID] = reply.ID
			if request.ID == 0 {
				p.chosen[side][reply.ID] = step.ID
			}
		}
	}
}

// usesChosen says whether a message puts a key with a lease whose id the server chose.
func (p *Pair) usesChosen(resolved proto.Message) (uses bool) {
	if resolved == nil {
		return false
	}
	walk(resolved.ProtoReflect(), func(m protoreflect.Message, _ protoreflect.FieldDescriptor, _ protoreflect.Value) {
		if put, ok := m.Interface().(*pb.PutRequest); ok {
			_, chosen := p.chosen[etcd][put.Lease]
			uses = uses || chosen
		}
	})
	return uses
}

// briefLease grants with a TTL that the servers raise to their least, and takes the lease back before time matters.
func (p *Pair) briefLease(ctx context.Context, step Step) error {
	err := p.exchange(step, p.ask(ctx, step, unary))
	revoke := Step{Method: methodRevoke, Message: &pb.LeaseRevokeRequest{ID: refLease + int64(step.ID)}}
	p.ask(ctx, revoke, unary) // not compared: it may have expired on a slow machine
	return err
}

// expire lets a lease with two keys end by time, and goes on when both servers have removed it.
func (p *Pair) expire(ctx context.Context, step Step) error {
	grant := step
	if err := p.exchange(grant, p.ask(ctx, grant, unary)); err != nil {
		return err
	}
	lease := refLease + int64(step.ID)
	for _, key := range []string{"expire/a", "expire/b"} {
		put := Step{ID: step.ID, Kind: kindCall, Method: methodPut,
			Message: &pb.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: lease}}
		if err := p.call(ctx, put); err != nil {
			return err
		}
	}
	var errs [2]error
	both(func(side int) {
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		for {
			reply, err := pb.NewKVClient(p.conns[side]).Range(ctx, &pb.RangeRequest{Key: []byte("expire/"),
				RangeEnd: []byte("expire0"), CountOnly: true})
			if err != nil || reply.Count == 0 {
				errs[side] = err
				return
			}
			time.Sleep(20 * time.Millisecond) // between two looks at the condition
		}
	})
	if err := errors.Join(errs[:]...); err != nil {
		return &Difference{What: "a lease that should have expired: " + err.Error()}
	}
	p.counts.hit("lease: expired by time")
	for _, after := range []Step{
		{ID: step.ID, Kind: kindCall, Method: methodTTL, Message: &pb.LeaseTimeToLiveRequest{ID: lease, Keys: true}},
		{ID: step.ID, Kind: kindCall, Method: methodRevoke, Message: &pb.LeaseRevokeRequest{ID: lease}},
		{ID: step.ID, Kind: kindCall, Method: methodRange, Message: wholeKeyspace},
	} {
		if err := p.call(ctx, after); err != nil {
			return err
		}
	}
	return nil
}

// restartAndCompare ends both servers, and compares all that can be read after it.
func (p *Pair) restartAndCompare(ctx context.Context, step Step) error {
	if err := p.sync(ctx); err != nil {
		return err
	}
	if err := p.restart(ctx, step.Kill); err != nil {
		return err
	}
	p.counts.restarts.Add(1)
	if step.Kill {
		p.counts.hit("restart: SIGKILL")
	} else {
		p.counts.hit("restart: SIGTERM")
	}
	for _, revision := range []int64{0, -1, -2, -3, -10, -30, -100} {
		request := proto.Clone(wholeKeyspace).(*pb.RangeRequest)
		if revision < 0 {
			request.Revision = max(refNow+revision, refNow-p.now+max(p.compacted, 1))
		}
		for _, check := range []Step{
			{Kind: kindCall, Method: methodRange, Message: request},
			{Kind: kindCall, Method: methodHashKV, Message: &pb.HashKVRequest{Revision: request.Revision}},
		} {
			if err := p.call(ctx, check); err != nil {
				return err
			}
		}
	}
	if err := p.call(ctx, Step{Kind: kindCall, Method: methodLeases, Message: &pb.LeaseLeasesRequest{}}); err != nil {
		return err
	}
	return p.sync(ctx) // the oracle has resumed from a past revision
}
