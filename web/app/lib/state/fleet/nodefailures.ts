/** Explains which nodes did not answer a query, and why. */
import type { NodeAnswers } from '../../api/schema.ts';
import { untold as t } from '../../text/states.ts';

/** What nodes say that could not answer, and who did not. */
export function nodeFailures({ answers, did_not_answer }: NodeAnswers): string[] {
  return [...failedNodes(answers), ...silentNodes(did_not_answer)];
}

export function failedNodes(answers: NodeAnswers['answers']): string[] {
  return Object.entries(answers).flatMap(([node, told]) =>
    told.what === 'failed' ? [t.failed(node, told.why)] : [],
  );
}

export function silentNodes(nodes: string[]): string[] {
  return nodes.length === 0 ? [] : [t.silent(nodes.join(', '))];
}
