package main

import (
	"bytes"
	"net/netip"
)

// Types and classes are as in the message: two bytes.
const (
	typeA, typeTXT, typeAAAA, classIN  = "\x00\x01", "\x00\x10", "\x00\x1c", "\x00\x01"
	formErr, nxDomain, notImp, refused = 1, 3, 4, 5
)

// table has the data of the records by name and type. A name is in lower case, with the length before each label. The
// records of a name and type fit into one datagram.
var table = map[string]map[string][]string{
	"\x05hello\x04test\x00": {typeA: {ip("192.0.2.1"), ip("192.0.2.2")}, typeTXT: {"\x05hello\x05world"}},
	"\x03six\x04test\x00":   {typeAAAA: {ip("2001:db8::6")}},
}

func ip(s string) string { return string(netip.MustParseAddr(s).AsSlice()) }

// answer returns the answer to a query, or nil if b is not a query.
func answer(query []byte) []byte {
	const response, authoritative, opcode, recursion = 0x80, 0x04, 0x78, 0x01
	if len(query) < 12 || query[2]&response != 0 {
		return nil // a server that answered answers could exchange them without end
	}
	code, question, found := byte(notImp), []byte(nil), []string(nil)
	if query[2]&opcode == 0 {
		code, question, found = lookup(query)
	}
	b := []byte{query[0], query[1], response | authoritative | query[2]&(opcode|recursion), code,
		0, byte(min(len(question), 1)), 0, byte(len(found)), 0, 0, 0, 0}
	b = append(b, question...)
	for _, data := range found {
		b = append(b, 0xc0, 12)                        // the name: see byte 12
		b = append(b, question[len(question)-4:]...)   // type and class
		b = append(b, 0, 0, 0, 60, 0, byte(len(data))) // for 60 seconds
		b = append(b, data...)
	}
	return b
}

// lookup parses the question and returns the records of its name and type.
func lookup(query []byte) (code byte, question []byte, found []string) {
	end := 12
	for end < len(query) && 0 < query[end] && query[end] < 64 {
		end += 1 + int(query[end])
	}
	if query[4] != 0 || query[5] != 1 || end+5 > len(query) || query[end] != 0 || end >= 12+255 {
		return formErr, nil, nil
	}
	question = query[12 : end+5]
	types, known := table[string(bytes.ToLower(query[12:end+1]))]
	switch {
	case string(query[end+3:end+5]) != classIN:
		return refused, question, nil
	case !known:
		return nxDomain, question, nil
	}
	return 0, question, types[string(query[end+1:end+3])]
}
