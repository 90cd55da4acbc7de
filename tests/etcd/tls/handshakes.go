// Servers that run, and which clients get through to them.
package main

import (
	"crypto/tls"
	"net/http"
)

// A visit is one client, and what each server does with it.
type visit struct {
	name            string
	etcd, sternpost string
	// Makes the visit; without it a request is made with the certificate that the name names.
	make func(*process, *pki) string
}

// A house is a server's flags, and who comes to it, in this order.
type house struct {
	flags  string
	visits []visit
}

// with alters a client's way to shake hands.
func with(client string, alter func(*tls.Config)) func(*process, *pki) string {
	return func(s *process, p *pki) string {
		config := p.as(client)
		alter(config)
		return s.call(s.client, config)
	}
}

func versions(client string, oldest, newest uint16) func(*process, *pki) string {
	return with(client, func(config *tls.Config) { config.MinVersion, config.MaxVersion = oldest, newest })
}

// suite asks for TLS 1.2 with one cipher suite.
func suite(id uint16) func(*process, *pki) string {
	return with("good", func(config *tls.Config) {
		config.MaxVersion, config.CipherSuites = tls.VersionTLS12, []uint16{id}
	})
}

func inTheClear(s *process, _ *pki) string { return s.call(s.client, nil) }

// get fetches a page from the client URL, or from the other one.
func get(scheme, path, client string, other bool, protocols ...func(*http.Protocols, bool)) func(*process, *pki) string {
	return func(s *process, p *pki) string {
		set := new(http.Protocols)
		for _, protocol := range protocols {
			protocol(set, true)
		}
		if len(protocols) == 0 {
			set.SetHTTP1(true)
		}
		config := p.as(client)
		config.NextProtos = nil
		address := s.client
		if other {
			address = s.extra
		}
		return page(scheme+"://"+address+path, config, set)
	}
}

// shaken shakes hands, offering these protocols, and tells whose certificate the server shows.
func shaken(protocols ...string) func(*process, *pki) string {
	return func(s *process, p *pki) string {
		config := p.as("good")
		config.NextProtos = protocols
		return s.shown(config)
	}
}

// shownAfter replaces a file, and tells whose certificate the server shows then.
func shownAfter(pairs ...string) func(*process, *pki) string {
	return func(s *process, p *pki) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			p.replace(pairs[i], pairs[i+1])
		}
		return s.shown(p.as("good"))
	}
}

// after replaces a file before a client comes.
func after(file, by, client string) func(*process, *pki) string {
	return func(s *process, p *pki) string {
		p.replace(file, by)
		return s.call(s.client, p.as(client))
	}
}

var (
	http1 = (*http.Protocols).SetHTTP1
	http2 = (*http.Protocols).SetHTTP2
	ca    = pair + "--trusted-ca-file=PKI/ca "
)

// Rows in which the two differ are in docs/differences.md.
var houses = []house{
	{pair, []visit{
		{"none", served, served, nil},
		{"other CA", served, served, nil},
		{"in the clear", refused, refused, inTheClear},
		{"TLS 1.1", refused, refused, versions("none", tls.VersionTLS10, tls.VersionTLS11)},
		{"TLS 1.2", served, served, versions("none", tls.VersionTLS12, tls.VersionTLS12)},
		{"TLS 1.3", served, served, versions("none", tls.VersionTLS13, tls.VersionTLS13)},
		{"a page, HTTP/1.1", "200", "200", get("https", "/health", "none", false)},
		{"a page, HTTP/2", "200", "200", get("https", "/health", "none", false, http2)},
		{"a page, either", "200", "200", get("https", "/version", "none", false, http1, http2)},
		{"a page in the clear", refused, refused, get("http", "/health", "none", false)},
		{"an unknown ALPN", refused, refused, shaken("h3")},
		{"no ALPN", `"server"`, `"server"`, shaken()},
	}},
	{ca, []visit{
		{"none", refused, refused, nil},
		{"good", served, served, nil},
		{"a page without certificate", refused, refused, get("https", "/health", "none", false)},
		{"a page", "200", "200", get("https", "/health", "good", false)},
	}},
	{ca + "--client-cert-auth", []visit{
		{"none", refused, refused, nil},
		{"none, TLS 1.2", refused, refused, versions("none", tls.VersionTLS12, tls.VersionTLS12)},
		{"good", served, served, nil},
		{"good, TLS 1.2", served, served, versions("good", tls.VersionTLS12, tls.VersionTLS12)},
		{"rsa", served, served, nil},
		{"ed25519", served, served, nil},
		{"p521", served, refused, nil},
		{"other CN", served, served, nil},
		{"other CA", refused, refused, nil},
		{"expired", refused, refused, nil},
		{"not yet", refused, refused, nil},
		{"server only", refused, refused, nil},
		{"any purpose", served, served, nil},
		{"an authority", served, refused, nil},
		{"intermediate", served, served, nil},
		{"no intermediate", refused, refused, nil},
		{"trusted itself", served, served, nil},
		{"another host", served, served, nil},
		{"in the clear", refused, refused, inTheClear},
	}},
	{pair + "--trusted-ca-file=PKI/both.ca --client-cert-auth --client-crl-file=PKI/crl", []visit{
		{"good", served, served, nil},
		{"revoked", refused, refused, nil},
		{"same serial", refused, refused, nil},
		{"other CA", served, served, nil},
		{"intermediate", served, served, nil},
		{"revoked later", served, served, nil},
		{"revoked later, once it is", refused, refused, after("crl", "crl.later", "revoked later")},
	}},
	{ca + "--client-cert-auth --client-cert-allowed-hostname=b.hosts.example,a.example", []visit{
		{"a host", served, served, nil},
		{"a wildcard", served, served, nil},
		{"another host", refused, refused, nil},
		{"good", refused, refused, nil},
	}},
	{ca + "--client-cert-allowed-hostname=10.0.0.1,a.example", []visit{
		{"a host", served, served, nil},
		{"an address", served, served, nil},
		{"another host", refused, refused, nil},
	}},
	{pair + "--tls-min-version=TLS1.3", []visit{
		{"TLS 1.2", refused, refused, versions("none", tls.VersionTLS12, tls.VersionTLS12)},
		{"TLS 1.3", served, served, versions("none", tls.VersionTLS13, tls.VersionTLS13)},
	}},
	{pair + "--tls-max-version=TLS1.2", []visit{
		{"TLS 1.2", served, served, versions("none", tls.VersionTLS12, tls.VersionTLS12)},
		{"TLS 1.3", refused, refused, versions("none", tls.VersionTLS13, tls.VersionTLS13)},
	}},
	{pair + "--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", []visit{
		{"that suite", served, served, suite(tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)},
		{"another", refused, refused, suite(tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)},
		{"one without authenticated encryption", refused, refused, suite(tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA)},
		{"TLS 1.3", served, served, versions("none", tls.VersionTLS13, tls.VersionTLS13)},
	}},
	{"--auto-tls --trusted-ca-file=PKI/ca --client-cert-auth", []visit{
		{"none", served, refused, nil},
		{"good", served, served, nil},
	}},
	{pair + "--listen-client-http-urls=http://EXTRA", []visit{
		{"none", served, served, nil},
		{"a page", "415", "404", get("https", "/health", "none", false, http2)},
		{"a page there", "200", "200", get("http", "/health", "none", true)},
		{"the version there", "200", "200", get("http", "/version", "none", true)},
		{"a call there", refused, refused, func(s *process, _ *pki) string { return s.call(s.extra, nil) }},
	}},
	{ca + "--listen-metrics-urls=http://EXTRA", []visit{
		{"good", served, served, nil},
		{"health there", "200", "200", get("http", "/health", "none", true)},
		{"the version there", "404", "404", get("http", "/version", "none", true)},
		{"a call there", refused, refused, func(s *process, _ *pki) string { return s.call(s.extra, nil) }},
	}},
	{ca + "--listen-metrics-urls=https://EXTRA", []visit{
		{"health there without certificate", refused, refused, get("https", "/health", "none", true)},
		{"health there", "200", "200", get("https", "/health", "good", true)},
		{"health there from another address than the certificate's", refused, "200", get("https", "/health", "an address", true)},
		{"health there in the clear", refused, refused, get("http", "/health", "none", true)},
	}},
	{pair + "--listen-client-urls=https://CLIENT,http://EXTRA", []visit{
		{"none", served, served, nil},
		{"in the clear", refused, refused, inTheClear},
		{"in the clear where that is said", served, served, func(s *process, _ *pki) string { return s.call(s.extra, nil) }},
	}},
	{pair + "--trusted-ca-file=PKI/ca", []visit{
		{"the first certificate", `"server"`, `"server"`, shownAfter()},
		{"the certificate is replaced, the key not yet", refused, `"server"`, shownAfter("cert", "cert2")},
		{"the key too", `"second"`, `"second"`, shownAfter("key", "key2")},
		{"both are damaged", refused, `"second"`, shownAfter("cert", "junk", "key", "junk")},
		{"another CA", refused, refused, func(s *process, p *pki) string { return s.call(s.client, p.as("other CA")) }},
		{"whole again", `"second"`, `"second"`, shownAfter("cert", "cert2", "key", "key2")},
		{"the authority is replaced", refused, served, after("ca", "other.ca", "other CA")},
	}},
}
