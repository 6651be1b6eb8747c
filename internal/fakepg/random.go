package fakepg

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Random is a piece of what a client may send: well-formed messages, in an order that makes sense more often than not.
// Pieces may follow each other in any way; none waits for an answer to another. tag is in every text.
func Random(r *rand.Rand, tag string) []pgproto3.FrontendMessage {
	switch r.IntN(20) {
	case 0, 1, 2, 3:
		return []pgproto3.FrontendMessage{&pgproto3.Query{String: randomScript(r, tag)}}
	case 4, 5, 6, 7, 8, 9:
		return randomBatch(r, tag)
	case 10, 11, 12:
		return randomCopy(r)
	case 13, 14:
		return []pgproto3.FrontendMessage{&pgproto3.Sync{}}
	case 15:
		return []pgproto3.FrontendMessage{&pgproto3.FunctionCall{Function: 177 * uint32(r.IntN(2)), ArgFormatCodes: []uint16{1},
			Arguments: [][]byte{{0, 0, 0, 0}, {0, 0, 0, 1}}, ResultFormatCode: 1}}
	case 16:
		return []pgproto3.FrontendMessage{&pgproto3.Flush{}}
	case 17:
		return []pgproto3.FrontendMessage{&pgproto3.Query{String: "COPY t FROM STDIN"}}
	default:
		return []pgproto3.FrontendMessage{randomSingle(r, tag)}
	}
}

func randomStatement(r *rand.Rand, tag string) string {
	switch r.IntN(20) {
	case 0, 1, 2:
		return fmt.Sprintf("SELECT '%s'", tag)
	case 3, 4:
		return fmt.Sprintf("SELECT '%s' FROM generate_series(1,%d)", tag, r.IntN(5))
	case 5:
		return fmt.Sprintf("DO $$BEGIN RAISE EXCEPTION '%s'; END$$", tag)
	case 6:
		return fmt.Sprintf("DO $$BEGIN RAISE NOTICE '%s'; END$$", tag)
	case 7, 8:
		return "BEGIN"
	case 9, 10, 11:
		return "COMMIT"
	case 12:
		return "ROLLBACK"
	case 13, 14:
		return "COPY t FROM STDIN"
	case 15:
		return fmt.Sprintf("COPY (SELECT '%s' FROM generate_series(1,%d)) TO STDOUT", tag, r.IntN(4))
	case 16:
		return fmt.Sprintf("SET application_name = '%s'", tag)
	case 17:
		return "INSERT INTO d VALUES (1)"
	case 18:
		return "SHOW application_name"
	}
	return "nonsense"
}

func randomScript(r *rand.Rand, tag string) string {
	var all []string
	for range 1 + max(r.IntN(5)-2, 0) {
		all = append(all, randomStatement(r, tag))
	}
	if r.IntN(30) == 0 {
		return ""
	}
	return strings.Join(all, "; ")
}

// randomBatch is a part of the extended protocol, with or without the Sync at its end.
func randomBatch(r *rand.Rand, tag string) (all []pgproto3.FrontendMessage) {
	for range 1 + max(r.IntN(5)-2, 0) {
		sql := randomStatement(r, tag)
		if r.IntN(30) == 0 {
			sql = ""
		}
		all = append(all, &pgproto3.Parse{Query: sql}, &pgproto3.Bind{})
		if r.IntN(2) == 0 {
			all = append(all, &pgproto3.Describe{ObjectType: "SP"[r.IntN(2)]})
		}
		e := &pgproto3.Execute{}
		if strings.Contains(sql, "generate_series") && !strings.HasPrefix(sql, "COPY") && r.IntN(2) == 0 {
			e.MaxRows = uint32(1 + r.IntN(3))
			all = append(all, e)
		}
		all = append(all, e)
		if r.IntN(4) == 0 {
			all = append(all, &pgproto3.Flush{})
		}
		if strings.HasPrefix(sql, "COPY t") && r.IntN(3) > 0 {
			if r.IntN(2) == 0 { // as libpq does
				all = append(all, &pgproto3.Sync{})
			}
			all = append(all, randomCopy(r)...)
		}
	}
	if r.IntN(4) > 0 {
		all = append(all, &pgproto3.Sync{})
	}
	return all
}

// randomCopy is what a client sends into a COPY.
func randomCopy(r *rand.Rand) (all []pgproto3.FrontendMessage) {
	for range r.IntN(4) {
		data := "1\n2\n"
		if r.IntN(8) == 0 {
			data = "x\n"
		}
		all = append(all, &pgproto3.CopyData{Data: []byte(data)})
		if r.IntN(12) == 0 {
			all = append(all, &pgproto3.Sync{})
		}
	}
	switch r.IntN(8) {
	case 0:
		all = append(all, &pgproto3.CopyFail{Message: "enough"})
	case 1:
	default:
		all = append(all, &pgproto3.CopyDone{})
	}
	return all
}

func randomSingle(r *rand.Rand, tag string) pgproto3.FrontendMessage {
	switch r.IntN(6) {
	case 0:
		return &pgproto3.Parse{Query: randomStatement(r, tag)}
	case 1:
		return &pgproto3.Bind{}
	case 2:
		return &pgproto3.Describe{ObjectType: "SP"[r.IntN(2)]}
	case 3:
		return &pgproto3.Close{ObjectType: "SP"[r.IntN(2)]}
	case 4:
		return &pgproto3.CopyDone{}
	}
	return &pgproto3.CopyData{Data: []byte("7\n")}
}
