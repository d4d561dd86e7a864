// The cases of secured_clients.py: reads them, and prints how writing and reading ended in each.
import fs from "node:fs";

export async function runCases(write, read, name) {
  async function outcome(action) {
    try {
      await action();
      return "ok";
    } catch (error) {
      return name(error);
    }
  }

  const outcomes = {};
  for (const one of JSON.parse(fs.readFileSync(0))) {
    outcomes[one.name] = [await outcome(() => write(one)), await outcome(() => read(one))];
  }
  console.log(JSON.stringify(outcomes));
  process.exit(0);
}
