// Requests that are no messages: cut off, of wrong wire types, with unknown fields, to unknown methods.
package main

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// rawCodec sends and receives bytes as they are, under the name of protobuf's codec.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// damages are the ways in which bytes are no message, by name. Each gets a right message and its first field's number.
var damages = []struct {
	name  string
	apply func(right []byte) []byte
}{
	{"cut off", func(b []byte) []byte { return append(b, 0x0a, 0x10, 'x') }},
	{"a tag without a value", func(b []byte) []byte { return append(b, 0x08) }},
	{"wrong wire type", func(b []byte) []byte { return append(b, wrongType...) }},
	{"unknown field", func(b []byte) []byte { return protowire.AppendVarint(append(b, 0xc8, 0x3e), 5) }},
	{"unknown group", func(b []byte) []byte { return append(b, 0xcb, 0x3e, 0xcc, 0x3e) }},
	{"group without an end", func(b []byte) []byte { return append(b, 0xcb, 0x3e) }},
	{"end of no group", func(b []byte) []byte { return append(b, 0xcc, 0x3e) }},
	{"huge length", func(b []byte) []byte { return append(b, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f) }},
	{"length of 2^63", func(b []byte) []byte {
		return append(b, 0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01)
	}},
	{"varint of 11 bytes", func(b []byte) []byte {
		return append(b, 0xc8, 0x3e, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01)
	}},
	{"field number 0", func(b []byte) []byte { return append(b, 0x00, 0x01) }},
	{"wire type 7", func(b []byte) []byte { return append(b, 0x0f) }},
}

// rawTargets are the methods that get malformed requests, with a right message that changes nothing.
var rawTargets = []struct {
	method  string
	message proto.Message
}{
	{methodRange, &pb.RangeRequest{Key: []byte("s")}},
	{methodRangeStream, &pb.RangeRequest{Key: []byte("s")}},
	{methodPut, &pb.PutRequest{Key: []byte("raw"), IgnoreValue: true}},
	{methodDelete, &pb.DeleteRangeRequest{Key: []byte("raw")}},
	{methodTxn, &pb.TxnRequest{}},
	{methodCompact, &pb.CompactionRequest{Revision: 1 << 60}},
	{methodGrant, &pb.LeaseGrantRequest{TTL: 1 << 60}},
	{methodRevoke, &pb.LeaseRevokeRequest{ID: 1 << 60}},
	{methodTTL, &pb.LeaseTimeToLiveRequest{ID: 1 << 60}},
	{methodLeases, &pb.LeaseLeasesRequest{}},
	{methodKeepAlive, &pb.LeaseKeepAliveRequest{ID: 1 << 60}},
	{methodWatch, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("s"), StartRevision: -1}}}},
	{methodHashKV, &pb.HashKVRequest{Revision: 1 << 60}},
	{methodStatus, &pb.StatusRequest{}},
	{methodAlarm, &pb.AlarmRequest{}},
	{methodMembers, &pb.MemberListRequest{}},
}

// unknownMethods exist on neither server.
var unknownMethods = []string{"/etcdserverpb.KV/Rang", "/etcdserverpb.Watch/Look", "/etcdserverpb.None/Range",
	"/KV/Range", "/etcdserverpb.Lease/", "/etcdserverpb.Maintenance/status"}

func (g *generator) malformed() Step {
	if g.one(20) {
		return g.step(kindRaw, unknownMethods[g.Intn(len(unknownMethods))], nil)
	}
	target := rawTargets[g.Intn(len(rawTargets))]
	right, err := proto.MarshalOptions{Deterministic: true}.Marshal(target.message)
	if err != nil {
		panic(err) // the messages are written above
	}
	step := g.step(kindRaw, target.method, nil)
	step.Raw = damages[g.Intn(len(damages))].apply(right)
	return step
}

// raw sends the bytes and takes the first answer, on a stream as well.
func (p *Pair) raw(ctx context.Context, step Step) error {
	var answers [2]Answer
	both(func(side int) {
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		var got []byte
		err := sendRaw(ctx, p.conns[side], step, &got)
		if err != nil {
			answers[side] = answer(nil, err)
			return
		}
		_, reply, err := types(step.Method)
		if err == nil {
			err = proto.Unmarshal(got, reply)
		}
		answers[side] = answer(reply, err)
	})
	if answers[etcd].Code == codes.Unimplemented {
		p.counts.hit("malformed: unknown method or service")
	}
	for _, damage := range damages {
		right, _ := proto.Marshal(rawMessage(step.Method))
		if string(damage.apply(right)) == string(step.Raw) {
			p.counts.hit("malformed: " + damage.name)
		}
	}
	request, _, err := types(step.Method)
	known := err == nil && request.ProtoReflect().Descriptor().Fields().ByNumber(1) != nil
	if known && bytes.HasSuffix(step.Raw, wrongType) {
		// differences.md, "a field of a wrong wire type": etcd's library passes over it, ours must refuse it.
		if answers[sternpost].Code != codes.Internal || !noMessage(answers[sternpost].Text) {
			return &Difference{What: "the refusal of a wrong wire type",
				Answers: [2]string{answers[etcd].String(), answers[sternpost].String()}}
		}
		p.counts.requests.Add(1)
		return nil
	}
	return p.exchange(step, answers)
}

// wrongType is field 1 as four fixed bytes, which it is in no request.
var wrongType = []byte{0x0d, 1, 2, 3, 4}

func rawMessage(method string) proto.Message {
	for _, target := range rawTargets {
		if target.method == method {
			return target.message
		}
	}
	return nil
}

func sendRaw(ctx context.Context, conn *grpc.ClientConn, step Step, got *[]byte) error {
	codec := grpc.ForceCodec(rawCodec{})
	switch step.Method {
	case methodRangeStream, methodWatch, methodKeepAlive:
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, step.Method, codec)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&step.Raw); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
		if step.Method != methodWatch {
			if err := stream.CloseSend(); err != nil {
				return err
			}
		}
		return stream.RecvMsg(got)
	}
	return conn.Invoke(ctx, step.Method, &step.Raw, got, codec)
}
