// franz-go and Sarama by TLS and logins: see secured_clients.py. Argument: the client. It reads cases, and prints how
// writing and reading ended in each.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log"
	"os"
)

type testCase struct {
	Name, Servers, CA, Certificate, Mechanism, User, Password, Token, Topic, Group string
}

type client interface {
	write(one testCase) error
	read(one testCase) error
	name(err error) string
}

func main() {
	var chosen client = franz{}
	if os.Args[1] == "sarama" {
		chosen = ibm{}
	}
	var cases []testCase
	check(json.NewDecoder(os.Stdin).Decode(&cases))
	outcomes := map[string][2]string{}
	for _, one := range cases {
		outcomes[one.Name] = [2]string{outcome(chosen, chosen.write(one)), outcome(chosen, chosen.read(one))}
	}
	check(json.NewEncoder(os.Stdout).Encode(outcomes))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func outcome(chosen client, err error) string {
	if err == nil {
		return "ok"
	}
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return "x509.UnknownAuthorityError"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "x509.Expired"
	}
	return chosen.name(err)
}

func tlsConfig(one testCase) *tls.Config {
	trusted, err := os.ReadFile(one.CA)
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if one.Certificate != "" {
		own, err := tls.LoadX509KeyPair(one.Certificate, one.Certificate)
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}
