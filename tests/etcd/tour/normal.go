// This file makes the outputs of two servers comparable: what each server chooses for itself gets a common name.
package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// rules are replaced in order, in the output of every step.
//   - raft_term, raft_index, raft_applied_index, sizes, storage version: docs/differences.md, or the server's own affair;
//   - times taken, dates, and the program's own place in a warning of etcdctl's log.
var rules = []struct {
	pattern *regexp.Regexp
	to      string
}{
	{regexp.MustCompile(`"(raft_term|raftTerm|raftIndex|raftAppliedIndex|dbSize|dbSizeInUse|dbSizeQuota)":"?\d+"?`), `"$1":N`},
	{regexp.MustCompile(`"(RaftTerm|RaftIndex|RaftAppliedIndex|DBSize|DBSizeInUse|DBSizeQuota)" : \d+`), `"$1" : N`},
	// A snapshot's format is each server's own: docs/differences.md.
	{regexp.MustCompile(`Server version \S+`), `Server version V`},
	{regexp.MustCompile(`"size":"[^"]*"`), `"size":N`},
	{regexp.MustCompile(`"etcd-version":"[^"]*"`), `"etcd-version":V`},
	{regexp.MustCompile(`took = ?\S+`), `took = T`},
	{regexp.MustCompile(`"(took|Took)"( ?: ?)[^,}\s]+`), `"$1"$2T`},
	{regexp.MustCompile(`LocalAddr: '[^']*'`), `LocalAddr: PORT`},
	{regexp.MustCompile(`\b\d+\.\d+(µs|ms|s)\b`), `T`},
	{regexp.MustCompile(`"ts":"[^"]*"`), `"ts":T`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+`), `T`},
	{regexp.MustCompile(`"target":"etcd-endpoints://0x[0-9a-f]+/`), `"target":"`},
	{regexp.MustCompile(`0x[0-9a-f]{6,}\??`), `POINTER`},
	{regexp.MustCompile(`http://(127\.0\.0\.1:\d+|localhost:2380)`), `PEER`},
	{regexp.MustCompile(`\b\d+%`), `N%`},
	{regexp.MustCompile(`remaining\(\d+s\)`), `remaining(N)`},
	{regexp.MustCompile(`"(ttl|TTL)"( ?: ?)(59\d|89\d|600|900)`), `"$1"$2 NEARLY`},
}

var (
	inJSON   = regexp.MustCompile(`"(key|value)":"([A-Za-z0-9+/]+=*)"`)
	idLike   = regexp.MustCompile(`\b(?:0x)?([0-9a-f]{11,16}|\d{15,20})\b`)
	rule     = regexp.MustCompile(`[-─]{3,}`)
	blanks   = regexp.MustCompile(` {2,}`)
	sizeCell = regexp.MustCompile(`\b[\d.]+ [kMG]?B\b`)
)

// names gives the ids of a server (cluster, member, leases) names in the order in which they appear, so that what is
// the same id stays the same and what is another one is another.
type names struct {
	known map[uint64]string
	ids   []uint64
	// Replaced as plain text: endpoints and directories.
	texts [][2]string
}

func (n *names) name(id uint64) string {
	if n.known == nil {
		n.known = map[uint64]string{}
	}
	if _, known := n.known[id]; !known {
		n.ids = append(n.ids, id)
		n.known[id] = fmt.Sprintf("<id%d>", len(n.ids))
	}
	return n.known[id]
}

func (n *names) replaceIds(text string) string {
	return idLike.ReplaceAllStringFunc(text, func(word string) string {
		word = strings.TrimPrefix(word, "0x")
		asHex, hexErr := strconv.ParseUint(word, 16, 64)
		asDecimal, decimalErr := strconv.ParseUint(word, 10, 64)
		if _, known := n.known[asHex]; hexErr == nil && (known || decimalErr != nil) {
			return n.name(asHex)
		}
		if decimalErr != nil {
			return word
		}
		return n.name(asDecimal)
	})
}

// normal is what is compared of one output.
func (n *names) normal(text, format string) string {
	if format == "json" {
		// Keys that hold a lease's id are in base64.
		text = inJSON.ReplaceAllStringFunc(text, func(field string) string {
			parts := inJSON.FindStringSubmatch(field)
			plain, err := base64.StdEncoding.DecodeString(parts[2])
			if err != nil {
				return field
			}
			return fmt.Sprintf("%q:%q", parts[1], plain)
		})
	}
	for _, pair := range n.texts {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	for _, r := range rules {
		text = r.pattern.ReplaceAllString(text, r.to)
	}
	text = n.replaceIds(text)
	if format == "table" {
		// Columns are as wide as the ids in them.
		text = rule.ReplaceAllString(text, "---")
		text = blanks.ReplaceAllString(text, " ")
	}
	return text
}

// statusCells hides, in one line of `endpoint status` in simple or table form, the cells that the rules hide by name in
// the other formats: sizes, quota, term and indexes.
func statusCells(text string) string {
	text = sizeCell.ReplaceAllString(text, "SIZE")
	var out []string
	for _, line := range strings.Split(text, "\n") {
		for _, separator := range []string{", ", "│", "|"} {
			cells := strings.Split(line, separator)
			if len(cells) < 12 {
				continue
			}
			for i, cell := range cells {
				if _, err := strconv.Atoi(strings.TrimSpace(cell)); err == nil {
					cells[i] = "N"
				}
			}
			line = strings.Join(cells, separator)
			break
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// asJSON shows what -w protobuf wrote for one of the commands whose reply is one message.
func asJSON(command string, wire string) string {
	var message proto.Message
	switch command {
	case "put":
		message = &pb.PutResponse{}
	case "get":
		message = &pb.RangeResponse{}
	case "del":
		message = &pb.DeleteRangeResponse{}
	case "txn":
		message = &pb.TxnResponse{}
	}
	if message == nil || proto.Unmarshal([]byte(wire), message) != nil {
		return wire
	}
	if h, ok := message.(interface{ GetHeader() *pb.ResponseHeader }); ok && h.GetHeader() != nil {
		h.GetHeader().ClusterId, h.GetHeader().MemberId, h.GetHeader().RaftTerm = 0, 0, 0
	}
	shown, err := protojson.Marshal(message)
	if err != nil || len(message.ProtoReflect().GetUnknown()) > 0 {
		return hex.EncodeToString([]byte(wire))
	}
	// protojson varies its blanks on purpose.
	return strings.ReplaceAll(string(shown), " ", "") + "\n"
}
